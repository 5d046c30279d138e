package latchtest_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sealed"
	latch "github.com/httplatch/httplatch/middleware"
)

type wiring = func(lock.Store) http.Handler

func orderOf42() *http.Request {
	r := order("42")
	r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
	return r
}

// replay runs one replay in a bubble and returns how it ended.
func replay(t *testing.T, loss string, wire wiring, newRequest func() *http.Request) *recorder {
	t.Helper()
	return inBubble(t, func(r *recorder) { latchtest.Replay(r, loss, wire, newRequest) })
}

var byUser = keyfunc.Header("X-User-ID")

func guarded(guard func(l *lock.Locker) func(http.Handler) http.Handler, opts ...lock.Option) wiring {
	return func(s lock.Store) http.Handler {
		return guard(lock.New(s, append([]lock.Option{lock.WithLogger(quiet)}, opts...)...))(http.HandlerFunc(created))
	}
}

func locked(opts ...latch.LockOption) func(l *lock.Locker) func(http.Handler) http.Handler {
	return func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Lock(l, "user", byUser, opts...) }
}

func idempotent(opts ...latch.IdempotentOption) func(l *lock.Locker) func(http.Handler) http.Handler {
	return func(l *lock.Locker) func(http.Handler) http.Handler {
		return latch.Idempotent(l, byUser, keyfunc.IdempotencyKey, opts...)
	}
}

func nested(opts ...latch.LockOption) func(l *lock.Locker) func(http.Handler) http.Handler {
	return func(l *lock.Locker) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler { return idempotent()(l)(locked(opts...)(l)(next)) }
	}
}

func lockOutside(guard func(l *lock.Locker) func(http.Handler) http.Handler) func(l *lock.Locker) func(http.Handler) http.Handler {
	return func(l *lock.Locker) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler { return locked()(l)(guard(l)(next)) }
	}
}

func deduped(l *lock.Locker) func(http.Handler) http.Handler {
	return latch.Dedupe(l, byUser, time.Minute)
}

func encrypted(wire wiring) wiring {
	block, err := aes.NewCipher(make([]byte, 32))
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return func(s lock.Store) http.Handler { return wire(sealed.New(s, aead)) }
}

var goodWirings = map[string]wiring{
	"Lock":                              guarded(locked()),
	"Lock with a cool-down":             guarded(locked(latch.WithCooldown(time.Minute))),
	"Lock that says 423":                guarded(locked(latch.WithContentionStatus(http.StatusLocked))),
	"Lock that fails open":              guarded(locked(latch.WithFailOpen())),
	"Lock with fences":                  guarded(locked(), lock.WithFencing()),
	"Lock with a queue":                 guarded(locked(), lock.WithWait(time.Second)),
	"Lock with a small budget":          guarded(locked(), lock.WithBudget(50*time.Millisecond)),
	"Idempotent":                        guarded(idempotent()),
	"Idempotent that runs again":        guarded(idempotent(), lock.WithRerunAbandoned()),
	"Idempotent that cannot replay":     guarded(idempotent(latch.WithBodyLimits(1<<20, 1))),
	"Idempotent that fails open":        guarded(idempotent(latch.WithFailOpen())),
	"Idempotent and Lock":               guarded(nested()),
	"Idempotent and Lock and cool-down": guarded(nested(latch.WithCooldown(time.Minute))),
	"Dedupe":                            guarded(deduped),
	"sealed Idempotent":                 encrypted(guarded(idempotent())),
	"sealed cool-down":                  encrypted(guarded(locked(latch.WithCooldown(time.Minute)))),
}

func TestIncidentPassesWithALocker(t *testing.T) {
	t.Parallel()
	for name, wire := range goodWirings {
		for _, loss := range latchtest.Losses() {
			parallel.Run(t, name+"/"+loss, func(t *testing.T) { require.Empty(t, replay(t, loss, wire, orderOf42).failed) })
		}
	}
}

func TestIncidentFailsWithoutOne(t *testing.T) {
	t.Parallel()
	get := func() *http.Request { return httptest.NewRequest(http.MethodGet, "/orders", nil) }
	simple := func(h http.HandlerFunc) wiring { return func(lock.Store) http.Handler { return h } }
	setNX := naively(func(*naive) {})
	failing := func(status int) wiring {
		return simple(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	insideIdempotent := func(s lock.Store) http.Handler {
		return idempotent()(lock.New(s, lock.WithLogger(quiet)))(setNX(s))
	}
	ownUser := func() *http.Request { return order(rand.Text()) }
	noUser := func() *http.Request { return order("") }
	noRequest := func() *http.Request { return nil }
	one := orderOf42()
	oneRequest := func() *http.Request { return one }
	const (
		nothing   = "nothing was lost; "
		claim     = "the reply of the claim was lost; "
		claims    = "the replies of all claims were lost; "
		ends      = "the replies of all releases and settles were lost; "
		next      = "the next request of the same user was "
		byClaim   = next + `refused with 409: its key "user=42" was left behind by a claim that no caller waited for`
		byEnd     = next + `refused with 409: its key "user=42" was left behind by a request that had been answered`
		outside   = nothing + `Lock is mounted outside Idempotent or Dedupe: it held "user=42" when`
		thatMet   = "the request that met this was "
		retries   = thatMet + `refused with 409, want success or 503: it was refused by its own earlier claim of "user=42"`
		both      = "the replies of the claim and of all releases and settles were lost; "
		kept      = `the next request of the same user succeeded, but after another 2s key "user=`
		unguarded = "the request claimed nothing in the store: are its method and its route guarded?"
		requests  = nothing + "newRequest's request was answered with "
	)
	keeps := naively(func(n *naive) { n.keep = true })
	for _, tt := range []struct {
		name, loss string
		wire       wiring
		newRequest func() *http.Request
		want       string
	}{
		{"SetNX", "claim_reply_lost", setNX, orderOf42, claim + byClaim},
		{"SetNX", "all_claim_replies_lost", setNX, orderOf42, claims + byClaim},
		{"SetNX", "claim_and_release_replies_lost", setNX, orderOf42, both + byClaim},
		{"SetNX", "releases_lost", setNX, orderOf42, "all releases and settles were lost; " + byEnd},
		{"SetNX inside Idempotent", "claim_reply_lost", insideIdempotent, orderOf42, claim + byClaim},
		{"SetNX with retries", "claim_reply_lost", naively(func(n *naive) { n.claims = 3 }), orderOf42, claim + retries},
		{
			"SetNX until there is an answer", "all_claim_replies_lost",
			naively(func(n *naive) { n.claims, n.patience = 1<<20, time.Millisecond }), orderOf42, claims + thatMet + "not answered within 2s",
		},
		{
			"500 on an error", "claim_reply_lost", naively(func(n *naive) { n.onError = http.StatusInternalServerError }), orderOf42,
			claim + thatMet + "answered with 500, want success or 503",
		},
		{"no release", "nothing_lost", keeps, orderOf42, nothing + byEnd},
		{"no release, and a key of its own", "nothing_lost", keeps, ownUser, nothing + kept},
		{"nothing is claimed", "nothing_lost", guarded(locked()), get, nothing + unguarded},
		{"an invalid request", "nothing_lost", guarded(locked()), noUser, requests + "400, want success\nits answer: {"},
		{"503 without a fault", "nothing_lost", failing(http.StatusServiceUnavailable), orderOf42, requests + "503, want success"},
		{
			"a panic", "claim_reply_lost", simple(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), orderOf42,
			claim + thatMet + "not answered: its handler panicked",
		},
		{
			"a refusal without a lock", "release_replies_lost", everySecond(http.StatusTooManyRequests), orderOf42,
			ends + next + "refused with 429, although nothing is held in the store",
		},
		{
			"a cool-down after a failure", "claim_reply_lost", coolsDown, orderOf42,
			claim + next + "refused with 429, although nothing is held in the store",
		},
		{"another failure", "release_replies_lost", everySecond(http.StatusNotFound), orderOf42, ends + next + "answered with 404, want success"},
		{"Lock outside Idempotent", "nothing_lost", guarded(lockOutside(idempotent())), orderOf42, outside},
		{"Lock outside Dedupe", "nothing_lost", guarded(lockOutside(deduped)), orderOf42, outside},
		{"no handler", "nothing_lost", func(lock.Store) http.Handler { return nil }, orderOf42, "latchtest: wire returned a nil http.Handler"},
		{"no request", "nothing_lost", guarded(locked()), noRequest, "latchtest: newRequest returned nil"},
		{"one request", "nothing_lost", guarded(locked()), oneRequest, "latchtest: newRequest returned one request twice"},
	} {
		parallel.Run(t, tt.name+"/"+tt.loss, func(t *testing.T) {
			failed := replay(t, tt.loss, tt.wire, tt.newRequest).failed
			require.Truef(t, strings.HasPrefix(failed, tt.want), "%q\nis not: %q...", failed, tt.want)
		})
	}
}

func coolsDown(s lock.Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, err := s.Claim(r.Context(), "user=42", lock.Claim{Token: "a", Attempt: 1, Lease: time.Minute})
		if err == nil && e.State == lock.Settled {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = s.Settle(r.Context(), "user=42", lock.Claim{Token: "a"}, nil, time.Minute)
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
}

// everySecond wires a guarded handler of which every second request gets status.
func everySecond(status int) wiring {
	return func(s lock.Store) http.Handler {
		good, n := guarded(locked())(s), 0
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n++; n%2 == 0 {
				w.WriteHeader(status)
				return
			}
			good.ServeHTTP(w, r)
		})
	}
}

// TestIncidentOfANaiveWiring is run by TestIncidentAsPrinted.
func TestIncidentOfANaiveWiring(t *testing.T) {
	switch os.Getenv(failForReal) {
	case "naive":
		latchtest.Incident(t, naively(func(*naive) {}), orderOf42)
	case "invalid":
		latchtest.Incident(t, guarded(locked()), func() *http.Request { return order("") })
	case "nil":
		latchtest.Incident(t, nil, orderOf42)
	default:
		t.Skip("fails, for another test")
	}
}

func TestIncidentAsPrinted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		failed []string
		text   string
	}{
		"naive": {
			[]string{"claim_reply_lost", "all_claim_replies_lost", "claim_and_release_replies_lost", "releases_lost"},
			"the reply of the claim was lost; the next request of the same user was refused with 409: " +
				`its key "user=42" was left behind by a claim that no caller waited for` + "\n",
		},
		"invalid": {[]string{"nothing_lost"}, "newRequest's request was answered with 400, want success\n"},
		"nil":     {nil, "latchtest: Incident without a wiring or without a request\n"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIncidentOfANaiveWiring$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), failForReal+"="+name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "%s", out)
			require.Contains(t, string(out), tt.text)
			var failed []string
			for _, m := range regexp.MustCompile(`--- FAIL: TestIncidentOfANaiveWiring/(\w+)`).FindAllStringSubmatch(string(out), -1) {
				failed = append(failed, m[1])
			}
			require.Equal(t, tt.failed, failed, "%s", out)
		})
	}
}

// naive is a guard by an author who forgets lost packets: one claim, whose failure counts as "not taken", and one release
// at the end. Its fields make it a little less naive, or more.
type naive struct {
	store lock.Store
	next  http.Handler

	claims   int           // how often it claims if there is an error
	onError  int           // the status if there still is
	patience time.Duration // between claims
	keep     bool          // it never releases
}

func naively(change func(n *naive)) func(lock.Store) http.Handler {
	return func(s lock.Store) http.Handler {
		n := &naive{store: s, next: http.HandlerFunc(created), claims: 1, onError: http.StatusServiceUnavailable}
		change(n)
		return n
	}
}

func created(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"id":1}`)
}

func (n *naive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := lock.Key("user", r.Header.Get("X-User-ID"))
	token, e, err := n.claim(r.Context(), key)
	switch {
	case err != nil:
		w.WriteHeader(n.onError)
		return
	case e.Token != token:
		w.WriteHeader(http.StatusConflict)
		return
	}
	if !n.keep {
		defer func() { _, _ = n.store.Release(context.WithoutCancel(r.Context()), key, lock.Claim{Token: token}) }()
	}
	n.next.ServeHTTP(w, r)
}

func (n *naive) claim(ctx context.Context, key string) (token string, e lock.Entry, err error) {
	for range n.claims {
		token = rand.Text()
		e, err = n.store.Claim(ctx, key, lock.Claim{Token: token, Attempt: 1, Lease: 2 * time.Hour})
		if err == nil {
			return token, e, nil
		}
		wait := time.NewTimer(n.patience)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return token, e, ctx.Err()
		}
	}
	return token, e, err
}
