package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// A repeat that waits for another process knows of the first run, so it does not run unprotected
// when the store fails meanwhile.
func TestWaitingRepeatDoesNotFailOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		store := flakyStore(&down, lock.ErrNotApplied)
		var e effects
		handlers := make([]http.Handler, 2)
		for i := range handlers {
			handlers[i] = once(newLocker(t, store, lock.WithLogger(quiet)), latch.WithFailOpen())(e.then(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(5 * time.Second)
				created(w, r)
			}))
		}
		first := make(chan *httptest.ResponseRecorder)
		go func() { first <- serve(handlers[0], keyed("k")) }()
		synctest.Wait()
		time.AfterFunc(2*time.Second, func() { down.Store(true) })
		time.AfterFunc(4*time.Second, func() { down.Store(false) })
		requireProblem(t, wantProblem{status: 409, kind: "in-progress", retryAfter: "1"}, serve(handlers[1], keyed("k")))
		require.Equal(t, 201, (<-first).Code)
		e.require(t, 1)
	})
}

// A repeat waits 10 s for the first answer, in the same process and in another one, and WithWait
// counts instead, 0 included. A Lock refuses at once.
func TestRepeatWaitsUnlessSaidOtherwise(t *testing.T) {
	t.Parallel()
	type guard = func(l *lock.Locker) func(http.Handler) http.Handler
	idempotent := func(l *lock.Locker) func(http.Handler) http.Handler { return once(l) }
	dedupe := func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Dedupe(l, byUser, time.Minute) }
	locks := func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Lock(l, "user", byUser) }
	for name, tt := range map[string]struct {
		guard  guard
		opts   []lock.Option
		works  time.Duration
		waits  time.Duration // of the repeat
		status int
	}{
		"Idempotent":                  {idempotent, nil, 9 * time.Second, 9 * time.Second, 201},
		"Idempotent, for too long":    {idempotent, nil, time.Minute, 10 * time.Second, 409},
		"Idempotent, for longer":      {idempotent, []lock.Option{lock.WithWait(time.Hour)}, time.Minute, time.Minute, 201},
		"Idempotent, for less":        {idempotent, []lock.Option{lock.WithWait(time.Second)}, 9 * time.Second, time.Second, 409},
		"Idempotent, not at all":      {idempotent, []lock.Option{lock.WithWait(0)}, 9 * time.Second, 0, 409},
		"Idempotent, the last counts": {idempotent, []lock.Option{lock.WithWait(time.Hour), lock.WithWait(0)}, 9 * time.Second, 0, 409},
		"Dedupe":                      {dedupe, nil, 9 * time.Second, 9 * time.Second, 201},
		"Dedupe, not at all":          {dedupe, []lock.Option{lock.WithWait(0)}, 9 * time.Second, 0, 409},
		"Lock":                        {locks, nil, 9 * time.Second, 0, 409},
	} {
		for where, processes := range map[string]int{"here": 1, "elsewhere": 2} {
			t.Run(name+"/"+where, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					handlers := make([]http.Handler, processes)
					var e effects
					for i := range handlers {
						handlers[i] = tt.guard(newLocker(t, store, tt.opts...))(e.then(func(w http.ResponseWriter, r *http.Request) {
							time.Sleep(tt.works)
							created(w, r)
						}))
					}
					first := make(chan *httptest.ResponseRecorder)
					go func() { first <- serve(handlers[0], keyed("k")) }()
					synctest.Wait()
					began := time.Now()
					repeat := serve(handlers[processes-1], keyed("k"))
					require.Equal(t, tt.status, repeat.Code)
					waited := time.Since(began)
					require.GreaterOrEqual(t, waited, tt.waits)
					require.Less(t, waited, tt.waits+500*time.Millisecond, "a poll later at most")
					require.Equal(t, 201, (<-first).Code)
					e.require(t, 1)
				})
			})
		}
	}
}
