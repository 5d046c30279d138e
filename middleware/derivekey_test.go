package middleware_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var keySecret = latch.WithKeySecret([]byte("0123456789abcdef"))

// derived holds a handler's view of its submission.
type derived struct {
	key     string // of the submission
	ok      bool
	charge  string // derived
	refund  string
	err     error // of charge
	attempt int
}

func derivedIn(ctx context.Context) (d derived) {
	d.key, d.ok = latch.Key(ctx)
	d.charge, d.err = latch.DeriveKey(ctx, "charge")
	d.refund, _ = latch.DeriveKey(ctx, "refund")
	d.attempt = lock.Attempt(ctx)
	return d
}

// deriving notes the keys of each run, and answers with the next status.
func deriving(seen *[]derived, statuses ...int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*seen = append(*seen, derivedIn(r.Context()))
		w.WriteHeader(statuses[min(len(*seen), len(statuses))-1])
	})
}

// TestDerivedKeysArePinned: a process of another version, or of another build, has to derive
// the same keys. They must never change.
func TestDerivedKeysArePinned(t *testing.T) {
	t.Parallel()
	var seen []derived
	serve(once(newLocker(t, memstore.New()), keySecret)(deriving(&seen, 201)), keyed("k"))
	require.Equal(t, []derived{{
		key: "hj_UsHC_AZQxXT4H7sXIe8IZaa7bcZbuIEULpVY6Y10", ok: true,
		charge: "OZ5ZTJ5HACFDUTKUH2MZEOBGFC5U2FG2", refund: "MCWSDKAKA7FAHKNM2XNVHJ6VRST7XEUP", attempt: 1,
	}}, seen)
}

// TestDerivedKeyOfEachAttempt: a handler that failed, or whose process died, derives the same
// keys when it runs again, in another process and over another store, too.
func TestDerivedKeyOfEachAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []derived
		h := deriving(&seen, 503, 500, 201)
		guard := once(newLocker(t, memstore.New()), keySecret)
		for _, key := range []string{"k", `"k"`, "k"} {
			serve(guard(h), keyed(key))
		}
		other := once(newLocker(t, memstore.New()), latch.With(latch.WithFailOpen(), keySecret))
		serve(other(h), keyed("k"))

		memory := memstore.New()
		dying := &mortalStore{Store: memory}
		dead, alive := lock.New(dying), lock.New(memory, lock.WithRerunAbandoned())
		t.Cleanup(func() { end(dead); end(alive) })
		serve(once(dead, keySecret)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen = append(seen, derivedIn(r.Context()))
			dying.Dead.Store(true)
			time.Sleep(time.Minute)
			serve(once(alive, keySecret)(h), keyed("k"))
		})), keyed("k"))
		time.Sleep(25 * time.Hour) // the dead process gives up its clean-up

		require.Len(t, seen, 6)
		require.Equal(t, 2, seen[5].attempt)
		for _, d := range seen {
			d.attempt = seen[0].attempt
			require.Equal(t, seen[0], d)
		}
		require.NoError(t, seen[0].err)
		require.Regexp(t, "^[A-Z2-7]{32}$", seen[0].charge)
		require.NotEqual(t, seen[0].charge, seen[0].refund)
	})
}

// TestDerivedKeyOfFailOpen: without its store a guard cannot keep a repeat from running, so the
// keys of the calls have to be the same.
func TestDerivedKeyOfFailOpen(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	down.Store(true)
	var seen []derived
	h := deriving(&seen, 201)
	serve(once(newLocker(t, flakyStore(&down, lock.ErrNotApplied)), keySecret, latch.WithFailOpen())(h), keyed("k"))
	serve(once(newLocker(t, memstore.New()), keySecret)(h), keyed("k"))
	require.NoError(t, seen[0].err)
	seen[0].attempt = seen[1].attempt
	require.Equal(t, seen[1], seen[0])
}

// TestDerivedKeysDiffer: each difference that makes another submission makes other keys, and so
// does another secret: an attacker who knows everything else cannot compute a key.
func TestDerivedKeysDiffer(t *testing.T) {
	t.Parallel()
	path := func(r *http.Request) *http.Request { r.URL.Path += "/7"; return r }
	method := func(r *http.Request) *http.Request { r.Method = http.MethodPut; return r }
	var seen []derived
	for _, c := range []struct {
		scope   string
		secret  latch.Option
		request *http.Request
	}{
		{"42", keySecret, keyed("k")},
		{"42", keySecret, keyed("l")},
		{"43", keySecret, keyed("k")},
		{"42", keySecret, path(keyed("k"))},
		{"42", keySecret, method(keyed("k"))},
		{"42", latch.WithKeySecret([]byte("0123456789abcdeg")), keyed("k")},
	} {
		scope := func(*http.Request) (string, error) { return c.scope, nil }
		guard := latch.Idempotent(newLocker(t, memstore.New()), scope, keyfunc.IdempotencyKey, c.secret)
		serve(guard(deriving(&seen, 201)), c.request)
	}
	keys, ids := map[string]bool{}, map[string]bool{}
	for _, d := range seen {
		require.NoError(t, d.err)
		keys[d.charge], keys[d.refund], ids[d.key] = true, true, true
	}
	require.Len(t, keys, 2*len(seen))
	require.Len(t, ids, len(seen)-1, "without the secret")
}

// TestNoDerivedKey: a key that would be another one in the next run, or the same for the next
// submission, is none.
func TestNoDerivedKey(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	for name, c := range map[string]struct {
		guard func(http.Handler) http.Handler
		says  string
		ok    bool
	}{
		"no guard": {func(h http.Handler) http.Handler { return h }, "not of a handler under Idempotent", false},
		"a lock":   {latch.Lock(l, "user", byUser, keySecret), "not of a handler under Idempotent", false},
		"no key":   {latch.Idempotent(l, byUser, keyfunc.Optional(keyfunc.Header("X-Absent")), keySecret), "not of a handler under Idempotent", false},
		"Dedupe":   {latch.Dedupe(l, byUser, time.Second, keySecret), "Dedupe", false},
		"without":  {once(l), "WithKeySecret", true},
		"Dedupe within": {func(h http.Handler) http.Handler {
			return once(l, keySecret)(latch.Dedupe(l, byUser, time.Second, keySecret)(h))
		}, "Dedupe", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []derived
			serve(c.guard(deriving(&seen, 201)), keyedBody(strings.ReplaceAll(name, " ", "-"), name))
			require.Len(t, seen, 1)
			require.ErrorContains(t, seen[0].err, c.says)
			require.Equal(t, c.ok, seen[0].ok)
			require.Equal(t, c.ok, seen[0].key != "")
			require.Empty(t, seen[0].charge)
		})
	}
	serve(once(l, keySecret)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := latch.DeriveKey(r.Context(), "")
		require.ErrorContains(t, err, "no name")
	})), keyed("empty"))
}
