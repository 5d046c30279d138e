package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestUnknown: after a call of Unknown, the answer of the handler decides the answer to a repeat,
// and its failure does not free the key. The twin does not call Unknown, and runs again.
func TestUnknown(t *testing.T) {
	t.Parallel()
	says := func(t *testing.T, r *http.Request) {
		t.Helper()
		late, cancel := context.WithCancel(r.Context())
		cancel() // the call that was lost has ended its context
		require.NoError(t, latch.Unknown(late))
	}
	silent := func(*testing.T, *http.Request) {}
	fails := func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }
	for name, tt := range map[string]struct {
		unknown func(*testing.T, *http.Request)
		answers func(w http.ResponseWriter)
		again   string // "": the first answer
		runs    int64
	}{
		"it fails":           {says, fails, "outcome-unknown", 1},
		"it panics":          {says, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "outcome-unknown", 1},
		"it knows better":    {says, func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) }, "", 1},
		"it says nothing":    {silent, fails, "", 2},
		"it says it twice":   {func(t *testing.T, r *http.Request) { t.Helper(); says(t, r); says(t, r) }, fails, "outcome-unknown", 1},
		"it also calls away": {func(t *testing.T, r *http.Request) { t.Helper(); says(t, r); callsAway(t, r) }, fails, "outcome-unknown", 1},
	} {
		for lockerName, locker := range map[string]func() *lock.Locker{
			"memory":           func() *lock.Locker { return newLocker(t, memstore.New()) },
			"redis":            func() *lock.Locker { return newLocker(t, redisStore(t), patient) },
			"run again":        func() *lock.Locker { return newLocker(t, memstore.New(), lock.WithRerunAbandoned()) },
			"in a transaction": func() *lock.Locker { return newLocker(t, faketx.New(), lock.WithTransaction()) },
		} {
			var e effects
			server := startServer(t, once(locker(), latch.WithName("orders"))(e.then(func(w http.ResponseWriter, r *http.Request) {
				tt.unknown(t, r)
				tt.answers(w)
			})))
			first := exchanged(t, server, clientRequest(t, server.URL, "k"))
			again := exchanged(t, server, clientRequest(t, server.URL, "k"))
			if tt.again == "" {
				require.Equal(t, first.status, again.status, "%s, %s", name, lockerName)
			} else {
				require.Equal(t, 409, again.status, "%s, %s", name, lockerName)
				require.Contains(t, string(again.body), "#"+tt.again)
			}
			e.require(t, tt.runs)
		}
	}
}

// callsAway calls a service that refuses: such a call had no effect, and says nothing of others.
func callsAway(t *testing.T, r *http.Request) {
	t.Helper()
	call := httptest.NewRequestWithContext(r.Context(), http.MethodPost, "http://provider.example/", nil)
	require.NoError(t, sendBy(t, latch.Upstream(replies(402)), call))
}

// TestUnknownBeforeACrash: the note in the store survives the process.
func TestUnknownBeforeACrash(t *testing.T) {
	t.Parallel()
	for unknown, status := range map[bool]int{true: 409, false: 201} {
		synctest.Test(t, func(t *testing.T) {
			memory := memstore.New()
			dying := &mortalStore{Store: memory}
			dead, alive := lock.New(dying, lock.WithRerunAbandoned(), lock.WithLogger(quiet)), lock.New(memory, lock.WithRerunAbandoned(), lock.WithLogger(quiet))
			t.Cleanup(func() { end(dead); end(alive) })
			serve(once(dead)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if unknown {
					require.NoError(t, latch.Unknown(r.Context()))
				}
				dying.Dead.Store(true)
				w.WriteHeader(http.StatusCreated)
			})), keyed("k"))
			time.Sleep(time.Minute)
			require.Equal(t, status, serve(once(alive)(http.HandlerFunc(created)), keyed("k")).Code)
			time.Sleep(48 * time.Hour) // its clean-up has given up
		})
	}
}

// TestUnknownUnderLock: with WithUnknownHold the key stays taken, without it is free.
func TestUnknownUnderLock(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]latch.LockOption{{latch.WithUnknownHold(time.Hour)}, nil} {
		guard := latch.Lock(newLocker(t, memstore.New()), "user", byUser, opts...)
		serve(guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			require.NoError(t, latch.Unknown(r.Context()))
			w.WriteHeader(http.StatusBadGateway)
		})), post("42"))
		require.Equal(t, map[bool]int{true: 409, false: 201}[len(opts) > 0], serve(guard(http.HandlerFunc(created)), post("42")).Code)
	}
}

// TestUnknownElsewhere: there is nothing to note it in.
func TestUnknownElsewhere(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, latch.Unknown(t.Context()), "behind a guard")
	l := newLocker(t, memstore.New())
	for name, guard := range map[string]func(http.Handler) http.Handler{"Idempotent": once(l), "Lock": latch.Lock(l, "user", byUser)} {
		var behind context.Context
		serve(guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			behind = context.WithoutCancel(r.Context())
			w.WriteHeader(http.StatusInternalServerError)
		})), keyed("k"))
		require.ErrorIs(t, latch.Unknown(behind), lock.ErrLost, name)
	}
}
