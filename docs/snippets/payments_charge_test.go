package snippets_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func chargeRoutes(locker *lock.Locker) http.Handler {
	mux := http.NewServeMux()
	scope := keyfunc.Join(keyfunc.Context(api.Account), keyfunc.Context(api.Mode))

	once := latch.Idempotent(locker.With(lock.WithRerunAbandoned()), scope, keyfunc.IdempotencyKey, latch.WithKeySecret(keySecret))
	mux.Handle("POST /v1/payments", api.Authenticate(once(http.HandlerFunc(chargeCard))))

	return mux
}

func chargeCard(w http.ResponseWriter, r *http.Request) {
	c, err := latch.Step(r.Context(), "charge", func(ctx context.Context) (*charge, error) {
		id, err := latch.DeriveKey(ctx, "charge") // the same in each attempt
		if err != nil {
			return nil, err
		}
		if c, err := provider.Find(ctx, id); c != nil || err != nil {
			return c, err // an earlier attempt has charged, and has no reply
		}
		return provider.Charge(ctx, id, 20_00) // id is the idempotency key there
	})
	switch {
	case errors.Is(err, errDeclined):
		http.Error(w, "the card was declined", http.StatusPaymentRequired) // kept
	case err != nil:
		http.Error(w, "try again", http.StatusServiceUnavailable) // not kept: the next try asks the provider again
	default:
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"charge":%q}`, c.ID)
	}
}

var keySecret = []byte("from the secret manager, 32 bytes")

var errDeclined = errors.New("declined")

type charge struct{ ID string }

// provider is one of cards. It knows what it has charged, and the time-outs of its callers
// are those of the request's context.
var provider = providerFuncs{
	Find:   func(ctx context.Context, id string) (*charge, error) { return providerOf(ctx).find(id) },
	Charge: func(ctx context.Context, id string, _ int) (*charge, error) { return providerOf(ctx).charge(id) },
}

type providerFuncs struct {
	Find   func(ctx context.Context, id string) (*charge, error)
	Charge func(ctx context.Context, id string, cents int) (*charge, error)
}

type providerKey struct{}

func providerOf(ctx context.Context) *cardProvider { return ctx.Value(providerKey{}).(*cardProvider) }

// cardProvider forgets idempotency keys when forgets is called, but no charge.
type cardProvider struct {
	byKey, byID map[string]*charge
	charged     int
	found       int
	late        error  // the charge is made, and its caller gets this
	after       func() // runs when a charge is made
}

func newProvider() *cardProvider {
	return &cardProvider{byKey: map[string]*charge{}, byID: map[string]*charge{}}
}

func (p *cardProvider) forget() { clear(p.byKey) }

func (p *cardProvider) find(id string) (*charge, error) { p.found++; return p.byID[id], nil }

func (p *cardProvider) charge(id string) (*charge, error) {
	if c := p.byKey[id]; c != nil {
		return c, nil
	}
	p.charged++
	c := &charge{ID: fmt.Sprintf("ch_%d", p.charged)}
	p.byKey[id], p.byID[id] = c, c
	if p.after != nil {
		p.after()
	}
	return c, p.late
}

// with puts the provider into the contexts of a handler.
func (p *cardProvider) with(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), providerKey{}, p)))
	})
}

// ofAProcess is the store as a process sees it that can die: then nothing of it arrives.
type ofAProcess struct {
	lock.Store

	dead atomic.Bool
}

var errDead = fmt.Errorf("%w: this process is dead", lock.ErrNotApplied)

func (s *ofAProcess) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if s.dead.Load() {
		return false, errDead
	}
	return s.Store.Renew(ctx, key, c)
}

func (s *ofAProcess) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	if s.dead.Load() {
		return false, errDead
	}
	return s.Store.Settle(ctx, key, c, receipt, keep)
}

func (s *ofAProcess) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if s.dead.Load() {
		return false, errDead
	}
	return s.Store.Release(ctx, key, c)
}

// TestSecondAttempt: a process dies when it has charged, and has not answered. The provider
// has forgotten the idempotency key, so only a handler that asks charges once.
func TestSecondAttempt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		routes  func(*lock.Locker) http.Handler
		charged int
	}{
		"asks":         {chargeRoutes, 1},
		"does not ask": {chargeRoutesUnasked, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory, cards := memstore.New(), newProvider()
				dying := &ofAProcess{Store: memory}
				first, second := lock.New(dying), lock.New(memory)
				crash := make(chan struct{})
				cards.after = func() { cards.after = nil; dying.dead.Store(true); <-crash }
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					pay(cards.with(tt.routes(first)), "sk_live_acme", "k", "{}")
				}()
				synctest.Wait()
				time.Sleep(31 * time.Second) // a lease
				cards.forget()
				h := cards.with(tt.routes(second))
				w := pay(h, "sk_live_acme", "k", "{}")
				require.Equal(t, http.StatusCreated, w.Code)
				require.Equal(t, "true", pay(h, "sk_live_acme", "k", "{}").Header().Get("Idempotent-Replayed"))
				require.Equal(t, tt.charged, cards.charged)
				close(crash)
				<-gone
				require.NoError(t, second.Close(t.Context()))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_ = first.Close(ctx)
				time.Sleep(25 * time.Hour) // its background work gives up
			})
		})
	}
}

func chargeRoutesUnasked(locker *lock.Locker) http.Handler {
	once := latch.Idempotent(locker.With(lock.WithRerunAbandoned()), keyfunc.Context(api.Account), keyfunc.IdempotencyKey, latch.WithKeySecret(keySecret))
	return api.Authenticate(once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := latch.DeriveKey(r.Context(), "charge")
		_, _ = provider.Charge(r.Context(), id, 20_00)
		w.WriteHeader(http.StatusCreated)
	})))
}

// TestTryAfterAFailure: the provider has charged, and its reply was lost. It is asked by the next attempt, and does not
// charge again, even if it has forgotten the idempotency key.
func TestTryAfterAFailure(t *testing.T) {
	t.Parallel()
	cards := newProvider()
	cards.late = context.DeadlineExceeded
	h := cards.with(chargeRoutes(newLocker(t, memstore.New())))
	require.Equal(t, http.StatusServiceUnavailable, pay(h, "sk_live_acme", "k", "{}").Code)
	cards.late = nil
	cards.forget()
	require.Equal(t, http.StatusCreated, pay(h, "sk_live_acme", `"k"`, "{}").Code)
	require.Equal(t, []int{1, 2}, []int{cards.charged, cards.found}, "charged once, and asked for in both attempts")

	require.Equal(t, http.StatusCreated, pay(h, "sk_live_globex", "k", "{}").Code)
	require.Equal(t, 2, cards.charged, "another account's payment")
}

// capture takes the money of a charge that was reserved.
func capture(ctx context.Context, c *http.Client, charges, id string) error {
	url := charges + "/" + id + "/capture"
	req, err := http.NewRequestWithContext(client.Step(ctx, "capture"), http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err // the handler answers with 503: the next run sends the same key
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the provider answered %s", resp.Status)
	}
	return nil
}

// TestStep: the handler fails after the provider has captured, and its client repeats: the
// provider meets the same key.
func TestStep(t *testing.T) {
	t.Parallel()
	var keys []string
	stripe := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.URL.Path+" "+r.Header.Get("Idempotency-Key"))
		if len(keys) == 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	defer stripe.Close()
	base := &http.Transport{DisableKeepAlives: true}
	c := &http.Client{Transport: client.Transport(base, client.WithAttempts(1))}
	once := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Context(api.Account), keyfunc.IdempotencyKey, latch.WithKeySecret(keySecret))
	h := api.Authenticate(once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := capture(r.Context(), c, stripe.URL, "ch_1"); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})))
	require.Equal(t, 503, pay(h, "sk_live_acme", "k", "{}").Code)
	require.Equal(t, 200, pay(h, "sk_live_acme", "k", "{}").Code)
	require.Len(t, keys, 2)
	require.Equal(t, keys[0], keys[1])
	require.Regexp(t, "^/ch_1/capture [A-Z2-7]{32}$", keys[0])
}

// transfer is for a bank that has no idempotency keys, and that cannot be asked.
func transfer(w http.ResponseWriter, r *http.Request) {
	if err := lock.Commit(r.Context()); err != nil { // no later try begins it again
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	if err := plainBank.Transfer(r.Context()); err != nil {
		http.Error(w, "the transfer may have been made", http.StatusBadGateway) // kept
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// transferFirst is the same in the wrong order for that bank.
func transferFirst(w http.ResponseWriter, r *http.Request) {
	if err := plainBank.Transfer(r.Context()); err != nil {
		http.Error(w, "the transfer may have been made", http.StatusBadGateway)
		return
	}
	_ = lock.Commit(r.Context())
	w.WriteHeader(http.StatusCreated)
}

type transfersKey struct{}

var plainBank transfers

// transfers counts the transfers of a context. All are made, and none is answered.
type transfers struct{}

func (transfers) Transfer(ctx context.Context) error {
	*ctx.Value(transfersKey{}).(*int)++
	return context.DeadlineExceeded
}

func TestCommitBeforeTheEffect(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		handler  http.HandlerFunc
		made     int
		replayed string
	}{
		"before": {transfer, 1, "true"},
		"after":  {transferFirst, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			once := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Context(api.Account), keyfunc.IdempotencyKey)
			h := api.Authenticate(once(tt.handler))
			made := 0
			counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), transfersKey{}, &made)))
			})
			require.Equal(t, http.StatusBadGateway, pay(counted, "sk_live_acme", "k", "{}").Code)
			again := pay(counted, "sk_live_acme", "k", "{}")
			require.Equal(t, http.StatusBadGateway, again.Code)
			require.Equal(t, tt.replayed, again.Header().Get("Idempotent-Replayed"))
			require.Equal(t, tt.made, made)
		})
	}
}
