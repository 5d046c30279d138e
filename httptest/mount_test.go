//nolint:bodyclose // what is recorded has nothing to close
package latchtest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var anyRequest = regexp.MustCompile(`request \d+ got a replay with status 200, and request \d+, which ran`)

type middlewareOf = func(l *lock.Locker) func(http.Handler) http.Handler

// parsing is a handler that refuses a body that is no JSON.
func parsing(w http.ResponseWriter, r *http.Request) {
	var order struct{ Sku string }
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		http.Error(w, "no order", http.StatusUnprocessableEntity)
		return
	}
	created(w, r)
}

func over(guard middlewareOf, mount func(guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler) wiring {
	return func(s lock.Store) http.Handler { return mount(guard(lock.New(s, lock.WithLogger(quiet))), parsing) }
}

// well mounts a guard as it should be.
func well(guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler { return guard(h) }

// late mounts a guard as frameworks do that answer errors last: the guard gets an implied 200 in place of the error.
func late(guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		failed, answer := 0, httptest.NewRecorder()
		guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inside := httptest.NewRecorder()
			if h(inside, r); inside.Code >= http.StatusBadRequest {
				failed = inside.Code
				w.WriteHeader(http.StatusOK)
				return
			}
			send(w, inside, 0)
		})).ServeHTTP(answer, r)
		send(w, answer, failed)
	})
}

// send sends what was recorded, with the status failed if that is not 0.
func send(w http.ResponseWriter, answer *httptest.ResponseRecorder, failed int) {
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(max(failed, answer.Code))
	_, _ = w.Write(answer.Body.Bytes())
}

// past mounts a guard whose writer the handler does not write to.
func past(guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { h(outer, r) })).ServeHTTP(outer, r)
	})
}

// twice mounts two guards that claim the same key.
func twice(guard middlewareOf) wiring {
	return func(s lock.Store) http.Handler {
		l := lock.New(s, lock.WithLogger(quiet))
		return guard(l)(guard(l)(http.HandlerFunc(parsing)))
	}
}

// wrapped is a store that a guard cannot distinguish from another store.
type wrapped struct{ lock.Store }

// twiceWrapped mounts two guards that claim the same key, and cannot see that they do.
func twiceWrapped(guard middlewareOf) wiring {
	return func(s lock.Store) http.Handler {
		outer, inner := lock.New(&wrapped{s}, lock.WithLogger(quiet)), lock.New(&wrapped{s}, lock.WithLogger(quiet))
		return guard(outer)(guard(inner)(http.HandlerFunc(parsing)))
	}
}

func TestIncidentOfMounts(t *testing.T) {
	t.Parallel()
	cooling, failure := locked(latch.WithCooldown(time.Minute)), latchtest.RepeatedFailure
	timeoutInside := func(guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler {
		return guard(http.TimeoutHandler(h, time.Minute, ""))
	}
	const (
		user    = `nothing was lost; the guard "user" reports: `
		record  = `nothing was lost; the guard "idempotent" reports: `
		late422 = "the body could not be parsed; the request was answered with 422, and its repeat "
		silent  = "a handler returned without an answer"
		mounted = "this guard is mounted twice around one handler"
	)
	for _, tt := range []struct {
		name, replay string
		wire         wiring
		want         string // "": it passes
	}{
		{"Idempotent", "nothing_lost", over(idempotent(), well), ""},
		{"Idempotent", failure, over(idempotent(), well), ""},
		{"Lock", failure, over(locked(), well), ""},
		{"cool-down", failure, over(cooling, well), ""},
		{"Idempotent, errors answered late", "nothing_lost", over(idempotent(), late), ""}, // as long as none is
		{"Idempotent, errors answered late", failure, over(idempotent(), late), late422 + "with 200: a failure has become a success"},
		{"cool-down, errors answered late", failure, over(cooling, late), late422 + "was refused with 429: a cool-down began after a failure"},
		{"Idempotent, past the guard", "nothing_lost", over(idempotent(), past), record + silent + ", and a framework outside of the guard has answered"},
		{"cool-down, past the guard", "nothing_lost", over(cooling, past), user + silent},
		{"TimeoutHandler inside", "nothing_lost", over(locked(), timeoutInside), user + "a handler goes on when its guard has returned"},
		{"two guards of one lock", "nothing_lost", twice(locked()), user + mounted},
		{"two guards of one record", "nothing_lost", twice(idempotent()), record + mounted},
		{
			"two guards of one lock, unseen", "nothing_lost", twiceWrapped(locked()),
			"nothing was lost; newRequest's request was refused with 409, want success: nothing else was under way, so it was refused by itself; " +
				"is a guard mounted twice",
		},
		{
			"two guards of one record, unseen", "nothing_lost", twiceWrapped(idempotent()),
			"nothing was lost; the request that met this, which waited for nothing else (is a guard mounted twice on its way, " +
				"or another one with the same name and key?), was not answered within 2s",
		},
	} {
		parallel.Run(t, tt.name+"/"+tt.replay, func(t *testing.T) {
			r := replay(t, tt.replay, tt.wire, orderOf42)
			require.Empty(t, r.skipped)
			if tt.want == "" {
				require.Empty(t, r.failed)
				return
			}
			require.Contains(t, r.failed, tt.want)
		})
	}
}

// TestFailureNotRepeated: where there is nothing to break, or no failure, nothing is said.
func TestFailureNotRepeated(t *testing.T) {
	t.Parallel()
	empty := func() *http.Request { r := orderOf42(); r.Body = http.NoBody; return r }
	require.Contains(t, replay(t, latchtest.RepeatedFailure, over(idempotent(), well), empty).skipped, "no body")
	require.Contains(t, replay(t, latchtest.RepeatedFailure, guarded(idempotent()), orderOf42).skipped, "does not fail")
	panics := func(guard func(http.Handler) http.Handler, _ http.HandlerFunc) http.Handler {
		return guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	}
	require.Contains(t, replay(t, latchtest.RepeatedFailure, over(idempotent(), panics), orderOf42).skipped, "does not fail")
}

// TestStormOfMounts: a replay of an answer that no request got is reported.
func TestStormOfMounts(t *testing.T) {
	t.Parallel()
	waiting := func(mount func(guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler) http.Handler {
		l := lock.New(memstore.New(), lock.WithLogger(quiet), lock.WithWait(time.Minute))
		return mount(latch.Idempotent(l, byUser, keyfunc.IdempotencyKey), func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(50 * time.Millisecond)
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte("no order"))
		})
	}
	storm := func(h http.Handler) { latchtest.Storm(h, 5, func(int) *http.Request { return orderOf42() }) }
	right := waiting(well)
	storm(right)
	storm(right) // all are replays
	require.PanicsWithValue(t, "latchtest: Storm: request 0 got a replay with status 200, and request 1, which ran, got 422: "+
		"a framework answers outside of the guard, which has recorded something else", func() {
		defer func() {
			text, _ := recover().(string)
			panic(anyRequest.ReplaceAllString(text, "request 0 got a replay with status 200, and request 1, which ran"))
		}()
		storm(waiting(late))
	})

	// Two guards of one lock that cannot see each other: the storm makes no order.
	for _, res := range latchtest.Storm(twiceWrapped(locked())(memstore.New()), 5, func(int) *http.Request { return orderOf42() }) {
		require.Equal(t, http.StatusConflict, res.StatusCode)
	}
}
