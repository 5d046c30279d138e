package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestLostLeaseEndsHandler, and gives it the cause, by the end of the lease.
func TestLostLeaseEndsHandler(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		store := memstore.New()
		l := newLocker(t, store, lock.WithLease(time.Second), lock.WithMaxHold(2*time.Second))
		for name, ends := range map[string]func(r *http.Request){
			"waits":  func(r *http.Request) { <-r.Context().Done() },
			"sleeps": func(*http.Request) { time.Sleep(3 * time.Second) },
			"freed":  func(r *http.Request) { operatorFrees(t, store); <-r.Context().Done() },
		} {
			for status, guard := range map[int]guardFunc{409: once(l), 200: latch.Lock(l, "user", byUser)} {
				began := time.Now()
				h := guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					ends(r)
					require.ErrorIs(t, context.Cause(r.Context()), lock.ErrLost, name)
					require.LessOrEqual(t, time.Since(began), 3*time.Second)
				}))
				require.Equal(t, status, serve(h, keyed(name)).Code)
				requireFree(t, l, lock.Key("user", "42"))
			}
		}
	})
}

// TestSilenceAfterALossIsNoSuccess: a handler that gives up at the end of its context, and answers nothing, has not
// answered an empty 200. In a transaction, it has had no effect. After Commit, it has had one.
func TestSilenceAfterALossIsNoSuccess(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		final := latch.WithFinal(func(status int) bool { return status == http.StatusCreated })
		for i, tt := range []struct {
			store         lock.Store
			lock          []lock.Option
			guard         []latch.IdempotentOption
			before        func(w http.ResponseWriter, r *http.Request)
			first, repeat int
		}{
			{store: memstore.New(), first: 409, repeat: 409},
			{store: faketx.New(), lock: []lock.Option{lock.WithTransaction()}, first: 409, repeat: 201},
			{store: memstore.New(), guard: []latch.IdempotentOption{final}, first: 200, repeat: 201},
			{store: memstore.New(), before: func(_ http.ResponseWriter, r *http.Request) { _ = lock.Commit(r.Context()) }, first: 200, repeat: 200},
			{store: memstore.New(), before: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, first: 200, repeat: 200},
		} {
			runs := 0
			h := once(newLocker(t, tt.store, append(tt.lock, lock.WithLease(time.Second), lock.WithMaxHold(2*time.Second))...), tt.guard...)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if runs++; runs > 1 {
					w.WriteHeader(http.StatusCreated)
				} else if tt.before != nil {
					tt.before(w, r)
				}
				<-r.Context().Done()
			}))
			require.Equal(t, tt.first, serve(h, keyed("k")).Code, i)
			require.Equal(t, tt.repeat, serve(h, keyed("k")).Code, i)
		}
	})
}

// TestLostStream: the lease was lost while the answer was held back. Another run answers or goes on, and nothing of
// this one leaves.
func TestLostStream(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(rc *http.ResponseController, w http.ResponseWriter) error{
		"flush":  func(rc *http.ResponseController, _ http.ResponseWriter) error { return rc.Flush() },
		"hijack": func(rc *http.ResponseController, _ http.ResponseWriter) error { _, _, err := rc.Hijack(); return err },
		"overflow": func(_ *http.ResponseController, w http.ResponseWriter) error {
			_, err := io.WriteString(w, strings.Repeat("x", 101))
			return err
		},
	} {
		for _, won := range []bool{true, false} {
			for _, noticed := range []bool{true, false} {
				inBubble(t, fmt.Sprintf("%s won=%v noticed=%v", name, won, noticed), func(t *testing.T) {
					memory := memstore.New()
					l, other := newLocker(t, &stubStore{Store: memory}), newLocker(t, memory)
					over := make(chan struct{})
					defer close(over)
					guarded := once(l, latch.WithBodyLimits(100, 100))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("X-Mine", "1")
						operatorFrees(t, memory)
						if noticed {
							<-r.Context().Done()
						}
						go serve(once(other)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
							if !won {
								<-over
							}
							_, _ = io.WriteString(w, "theirs")
						})), keyed("k"))
						synctest.Wait()
						rc := http.NewResponseController(w)
						require.ErrorIs(t, leave(rc, w), lock.ErrLost)
						if name != "hijack" {
							_, err := io.WriteString(w, "mine")
							require.ErrorIs(t, err, lock.ErrLost)
							require.ErrorIs(t, rc.Flush(), lock.ErrLost)
						}
						_, _, err := rc.Hijack()
						require.ErrorIs(t, err, lock.ErrLost)
						<-r.Context().Done()
						require.ErrorIs(t, context.Cause(r.Context()), lock.ErrLost)
					}))
					res, err := servePipes(t, guarded).Do(clientRequest(t, "http://pipe", "k"))
					if name == "hijack" {
						require.Error(t, err, "the connection was taken, and is closed")
						return
					}
					require.NoError(t, err)
					body, err := io.ReadAll(res.Body)
					require.NoError(t, errors.Join(err, res.Body.Close()))
					require.Empty(t, res.Header.Get("X-Mine"))
					if won {
						require.Equal(t, "theirs", string(body))
						require.Equal(t, "true", res.Header.Get("Idempotent-Replayed"))
						return
					}
					require.Equal(t, 409, res.StatusCode)
					require.Contains(t, string(body), "#outcome-unknown")
				})
			}
		}
	}
}

func operatorFrees(t *testing.T, store lock.Store) {
	t.Helper()
	inspector, ok := store.(lock.Inspector)
	require.True(t, ok)
	n := 0
	for e, err := range inspector.List(t.Context()) {
		require.NoError(t, err)
		must.Yes(t)(inspector.Forget(t.Context(), e.Key, e.Token))
		n++
	}
	require.NotZero(t, n)
}

// A handler goes on after its lease has reached its maximum, and no other run has taken over: its long answer is
// sent, and its context stays as the handler has found it.
func TestContextStaysEndedWhenALostRunIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e effects
		h := once(newLocker(t, memstore.New(), lock.WithMaxHold(time.Minute)))(e.then(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(2 * time.Minute)
			require.Error(t, r.Context().Err())
			must.Get(w.Write(make([]byte, 2<<20)))(t)
			require.Error(t, r.Context().Err())
		}))
		require.Equal(t, http.StatusOK, serve(h, keyed("k")).Code)
		requireProblem(t, wantProblem{status: http.StatusConflict, kind: "result-not-replayable"}, serve(h, keyed("k")))
		e.require(t, 1)
	})
}

type traceKey struct{}

// inTheMiddle is other middleware, which hides the handler inside it.
func inTheMiddle(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
}

// answering sets a header, so that there is an answer.
func answering(next http.Handler) http.Handler {
	if reflect.TypeOf(next) == reflect.TypeOf(http.TimeoutHandler(nil, 0, "")) {
		return next // the guard has to recognise this type
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Answered", "1")
		next.ServeHTTP(w, r)
	})
}

// A handler behind a TimeoutHandler, or a goroutine of a handler, may still work after the guard has freed the key.
func TestHandlerOutlivesItsGuard(t *testing.T) {
	timeout := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Second, "") }
	plain := func(h http.Handler) http.Handler { return h }
	// work goes on for as long as its handler, or it and a goroutine.
	slow := func(use func(ctx context.Context)) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(2 * time.Second)
			use(r.Context())
		}
	}
	behind := func(use func(ctx context.Context)) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) { go slow(use)(nil, r) }
	}
	after := func() {}
	none := func(context.Context) {}
	value := func(ctx context.Context) { ctx.Value(traceKey{}) }
	lease := func(ctx context.Context) { lock.FromContext(ctx) }
	for _, tt := range []struct {
		name            string
		inside, outside guardFunc
		handler         http.HandlerFunc
		once            bool // said of Idempotent as well
		lock            bool
	}{
		{"TimeoutHandler, context unused", timeout, plain, slow(none), true, true},
		{"hidden TimeoutHandler, a value", nest(inTheMiddle, timeout), plain, slow(value), true, true},
		{"hidden TimeoutHandler, the lease", nest(inTheMiddle, timeout), plain, slow(lease), true, true},
		{"TimeoutHandler outside", plain, timeout, slow(value), false, false},
		{"slow handler", plain, plain, slow(lease), false, false},
		{"goroutine, its context", plain, plain, behind(value), false, false},
		{"goroutine, WithoutCancel", plain, plain, behind(func(ctx context.Context) { value(context.WithoutCancel(ctx)) }), false, false},
		{"goroutine, the lease", plain, plain, behind(func(ctx context.Context) { lease(context.WithoutCancel(ctx)) }), false, true},
		{"clean-up of a derived context", plain, plain, func(_ http.ResponseWriter, r *http.Request) {
			_, cancel := context.WithCancel(r.Context())
			go func() { time.Sleep(time.Second); cancel() }()
		}, false, false},
		{"why it ended, asked by middleware outside", plain, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r); after() })
		}, func(_ http.ResponseWriter, r *http.Request) { after = func() { _ = context.Cause(r.Context()) } }, false, false},
	} {
		for guard, logged := range map[string]bool{"user": tt.lock, "idempotent": tt.once} {
			t.Run(guard+", "+tt.name, func(t *testing.T) {
				var out bytes.Buffer
				synctest.Test(t, func(t *testing.T) {
					l := newLocker(t, memstore.New(), logging(&out))
					guards := map[string]func(http.Handler) http.Handler{"user": latch.Lock(l, "user", byUser), "idempotent": once(l)}
					h := tt.outside(guards[guard](answering(tt.inside(tt.handler))))
					for range 3 {
						serve(h, keyed("k"))
						time.Sleep(5 * time.Second)
					}
				})
				if !logged {
					require.Empty(t, out.String())
					return
				}
				requireLine(t, &out, "ERROR", guard, "mount http.TimeoutHandler")
			})
		}
	}
}

// Adapters of routers (echo.WrapMiddleware is one) replace their own request by the request of
// the handler that they wrap, and leave it there. So access logs outside look for values in a
// context that has ended. The next request does too, if a program keeps a context for it.
func TestRequestLeftToOuterMiddleware(t *testing.T) {
	out := &bytes.Buffer{} // a server has answered before it is read
	for _, http2 := range []bool{false, true} {
		l := newLocker(t, memstore.New(), logging(out))
		for name, guard := range map[string]func(http.Handler) http.Handler{"Lock": latch.Lock(l, "user", byUser), "Idempotent": once(l)} {
			var left atomic.Pointer[http.Request]
			guarded := guard(answering(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { left.Store(r) })))
			server := startServerOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if kept := left.Load(); kept != nil {
					kept.Context().Value(traceKey{})
				}
				guarded.ServeHTTP(w, r)
				left.Load().Context().Value(traceKey{})
			}), http2)
			for _, key := range []string{"a", "b"} {
				require.Equal(t, 200, over(t, server, keyed(name+key)).status)
			}
		}
	}
	require.Empty(t, out.String())
}

// Once a stream has begun, only the client needs it. Before, the handler goes on even if the client leaves.
func TestStreamEndsWithItsClient(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		l := newLocker(t, memstore.New())
		ctx, leave := context.WithCancel(t.Context())
		returned := false
		h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			before := r.Context().Done()
			derived, cancel := context.WithTimeout(r.Context(), 24*time.Hour)
			defer cancel()
			require.NoError(t, http.NewResponseController(w).Flush())
			time.Sleep(time.Hour) // longer than any lease
			require.NoError(t, r.Context().Err())
			require.NoError(t, context.Cause(r.Context()))
			require.Equal(t, 1, lock.Attempt(r.Context()))
			leave()
			<-before
			<-derived.Done()
			require.ErrorIs(t, r.Context().Err(), context.Canceled)
			returned = true
		}))
		serve(h, keyed("k").WithContext(ctx))
		require.True(t, returned)
	})
}

// TestStreamOutlivesItsLease: a goroutine that first asks for the end of the context during the
// flush that begins the stream does not make it end with the lease again.
func TestStreamOutlivesItsLease(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	ended := 0
	h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, asked := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(asked)
			<-start
			r.Context().Done()
		}()
		close(start)
		assert.NoError(t, http.NewResponseController(w).Flush())
		<-asked
		if r.Context().Err() != nil {
			ended++
		}
	}))
	for i := range 20_000 {
		serve(h, keyed(strconv.Itoa(i)))
	}
	require.Zero(t, ended, "streams ended with their leases")
}

// TestContextOfHandler: it is detached from the client, keeps its values, and ends when the handler has returned.
func TestContextOfHandler(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		type key struct{}
		l := newLocker(t, memstore.New())
		ctx, leave := context.WithCancel(t.Context())
		ctx = context.WithValue(ctx, key{}, "value")
		var after context.Context
		h := once(l)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			after = r.Context()
			leave()
			synctest.Wait()
			require.NoError(t, r.Context().Err())
			select {
			case <-r.Context().Done():
				t.Error("the client's leaving must not end it")
			default:
			}
			require.Equal(t, "value", r.Context().Value(key{}))
			_, has := r.Context().Deadline()
			require.False(t, has)
		}))
		serve(h, keyed("k").WithContext(ctx))
		<-after.Done()
		require.ErrorIs(t, after.Err(), context.Canceled)
	})
}

// TestContextIsPrintedBesideItsUse: mocks print their arguments, a context among
// them, while other goroutines of the handler wait for its end. Run with -race.
func TestContextIsPrintedBesideItsUse(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	for _, guard := range []func(http.Handler) http.Handler{once(l), latch.Lock(l, "user", byUser)} {
		h := guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				r.Context().Done()
			}()
			require.Equal(t, "middleware.Context", fmt.Sprint(r.Context()))
			<-asked
			derived, cancel := context.WithCancel(r.Context())
			defer cancel()
			require.Equal(t, "middleware.Context.WithCancel", fmt.Sprint(derived))
		}))
		require.Equal(t, 200, serve(h, keyed("k")).Code)
	}
}
