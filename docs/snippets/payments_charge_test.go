package snippets_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// provider is one of cards. Tests of it run one after the other.
var provider *cardProvider

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

func (p *cardProvider) Find(_ context.Context, id string) (*charge, error) {
	p.found++
	return p.byID[id], nil
}

func (p *cardProvider) Charge(_ context.Context, id string, _ int) (*charge, error) {
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

// TestSecondAttempt: a handler hangs when it has charged, as in a process that dies: its lease is not renewed. The provider
// has forgotten the idempotency key, so only a handler that asks charges once.
func TestSecondAttempt(t *testing.T) { //nolint:paralleltest // provider is a variable
	for name, tt := range map[string]struct {
		routes  func(*lock.Locker) http.Handler
		charged int
	}{
		"asks":         {chargeRoutes, 1},
		"does not ask": {chargeRoutesUnasked, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, cards := memstore.New(), newProvider()
				provider = cards
				first, second := newLocker(t, memory, lock.WithLease(2*time.Second), lock.WithMaxHold(2*time.Second)), newLocker(t, memory)
				end, ended := make(chan struct{}), make(chan struct{})
				cards.after = func() { cards.after = nil; <-end }
				go func() {
					defer close(ended)
					pay(tt.routes(first), "sk_live_acme", "k", "{}")
				}()
				synctest.Wait()
				time.Sleep(5 * time.Second) // longer than its lease
				cards.forget()
				h := tt.routes(second)
				require.Equal(t, http.StatusCreated, pay(h, "sk_live_acme", "k", "{}").Code)
				require.True(t, replayed(pay(h, "sk_live_acme", "k", "{}")))
				require.Equal(t, tt.charged, cards.charged)
				close(end)
				<-ended
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
func TestTryAfterAFailure(t *testing.T) { //nolint:paralleltest // provider is a variable
	cards := newProvider()
	provider, cards.late = cards, context.DeadlineExceeded
	h := chargeRoutes(newLocker(t, memstore.New()))
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
	c := &http.Client{Transport: client.Transport(&http.Transport{DisableKeepAlives: true}, client.WithAttempts(1))}
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

func transferFirst(w http.ResponseWriter, r *http.Request) {
	if err := plainBank.Transfer(r.Context()); err != nil {
		http.Error(w, "the transfer may have been made", http.StatusBadGateway)
		return
	}
	_ = lock.Commit(r.Context())
	w.WriteHeader(http.StatusCreated)
}

var plainBank transfers

// transfers counts the transfers. All are made, and none is answered.
type transfers struct{ made int }

func (t *transfers) Transfer(context.Context) error {
	t.made++
	return context.DeadlineExceeded
}

func TestCommitBeforeTheEffect(t *testing.T) { //nolint:paralleltest // plainBank is a variable
	for name, tt := range map[string]struct {
		handler  http.HandlerFunc
		made     int
		replayed bool
	}{
		"before": {transfer, 1, true},
		"after":  {transferFirst, 2, false},
	} {
		plainBank = transfers{}
		once := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Context(api.Account), keyfunc.IdempotencyKey)
		h := api.Authenticate(once(tt.handler))
		require.Equal(t, http.StatusBadGateway, pay(h, "sk_live_acme", "k", "{}").Code)
		again := pay(h, "sk_live_acme", "k", "{}")
		require.Equal(t, http.StatusBadGateway, again.Code)
		require.Equal(t, tt.replayed, replayed(again), name)
		require.Equal(t, tt.made, plainBank.made, name)
	}
}
