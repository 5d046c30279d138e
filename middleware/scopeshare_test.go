package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func submitAs(h http.Handler, user, key string) *httptest.ResponseRecorder {
	r := keyed(key)
	r.Header.Set("X-User-ID", user)
	return serve(h, r)
}

// One user's requests are refused before they are too many for all.
func TestOneUserDoesNotFillTheStoreForOthers(t *testing.T) {
	t.Parallel()
	const entries = 100
	guards := map[string]func(l *lock.Locker) func(http.Handler) http.Handler{
		"idempotent": func(l *lock.Locker) func(http.Handler) http.Handler { return once(l) },
		"dedupe": func(l *lock.Locker) func(http.Handler) http.Handler {
			return latch.Dedupe(l, byUser, time.Hour, latch.WithFingerprint(keyfunc.IdempotencyKey))
		},
	}
	for name, guard := range guards {
		for _, tt := range []struct {
			share  float64
			served int // of user 42
			others int // status
		}{
			{0.25, entries / 4, http.StatusCreated},
			{1, entries, http.StatusServiceUnavailable}, // the case for which the share exists
		} {
			t.Run(name+" "+strconv.FormatFloat(tt.share, 'g', -1, 64), func(t *testing.T) {
				t.Parallel()
				l := newLocker(t, memstore.New(memstore.WithLimits(entries, 1<<20), memstore.WithScopeShare(tt.share)), lock.WithLogger(quiet))
				h := guard(l)(http.HandlerFunc(created))
				served := 0
				for i := range 2 * entries {
					switch status := submitAs(h, "42", strconv.Itoa(i)).Code; status {
					case http.StatusCreated:
						served++
					default:
						require.Equal(t, http.StatusServiceUnavailable, status)
					}
				}
				require.Equal(t, tt.served, served)
				require.Equal(t, http.StatusCreated, submitAs(h, "42", "0").Code, "a repeat is served whatever the share")
				require.Equal(t, tt.others, submitAs(h, "43", "0").Code)
			})
		}
	}
}

// An answer that does not fit is delivered. Its repeats get a refusal that
// reports it, for as long as it would have been kept.
func TestAnswerThatDoesNotFitIsNotReplayable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keep = time.Hour
		l := newLocker(t, memstore.New(memstore.WithLimits(100, 1<<19)), lock.WithLogger(quiet), lock.WithKeep(keep))
		var did effects
		h := once(l)(did.then(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }))
		require.Equal(t, 1<<20, serve(h, keyed("k")).Body.Len())
		for range 5 {
			requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, serve(h, keyed("k")))
			time.Sleep(keep / 6)
		}
		did.require(t, 1)
		time.Sleep(keep - 5*(keep/6))
		require.Equal(t, 1<<20, serve(h, keyed("k")).Body.Len())
		did.require(t, 2)
	})
}
