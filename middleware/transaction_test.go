package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

const (
	txLease  = 3 * time.Second
	txBudget = 300 * time.Millisecond
)

// txGuards are the guards whose handlers run in a transaction.
var txGuards = map[string]func(*lock.Locker, ...latch.IdempotentOption) guardFunc{
	"idempotent": once,
	"dedupe": func(l *lock.Locker, opts ...latch.IdempotentOption) guardFunc {
		return latch.Dedupe(l, byUser, time.Hour, opts...)
	},
}

// txBubble runs a test of each guard over two processes and a database, in which no transaction is open at its end.
func txBubble(t *testing.T, run func(t *testing.T, s *faketx.Store, guards [2]guardFunc), opts ...latch.IdempotentOption) {
	t.Helper()
	for name, guard := range txGuards {
		t.Run(name, func(t *testing.T) {
			t.Helper()
			synctest.Test(t, func(t *testing.T) {
				s := faketx.New()
				var guards [2]guardFunc
				var lockers [2]*lock.Locker
				for i := range guards {
					lockers[i] = lock.New(s, lock.WithLogger(quiet), lock.WithLease(txLease), lock.WithBudget(txBudget), lock.WithMaxHold(time.Minute),
						lock.WithKeep(time.Hour), lock.WithTransaction())
					guards[i] = guard(lockers[i], opts...)
				}
				run(t, s, guards)
				for _, l := range lockers {
					require.NoError(t, l.Close(t.Context()))
				}
				synctest.Wait()
				require.Zero(t, s.Open(), "transactions that have not ended")
			})
		})
	}
}

// order inserts a row, and then calls then, or answers 201 if then is nil.
func order(t *testing.T, row string, then http.HandlerFunc) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, 1, lock.Attempt(r.Context()))
		require.NoError(t, faketx.Insert(r.Context(), row))
		if then != nil {
			then(w, r)
			return
		}
		w.Header().Set("Location", "/orders/"+row)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, row)
	}
}

// txServe returns what h answers, nil if it panics. No answer is sent before the transaction has ended.
func txServe(t *testing.T, s *faketx.Store, h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	panicked := true
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(writerFunc{w, func() { require.Zero(t, s.Open(), "it leaves before the transaction has ended") }}, r)
		panicked = false
	}()
	if panicked {
		return nil
	}
	return w
}

// TestTransactionOfARequest has the ends that the rows "In a transaction" of docs/evidence/semantics.md
// do not have. Nothing is sent before the transaction has ended.
func TestTransactionOfARequest(t *testing.T) {
	t.Parallel()
	long := write(strings.Repeat("x", 101))
	commits := func(f faketx.Fault) func(*faketx.Store) { return func(s *faketx.Store) { s.Next(faketx.Commit, f) } }
	rolledBack, tryAgain := &wantProblem{500, "rolled-back", "", ""}, &wantProblem{503, "rolled-back", "1", ""}
	for _, tt := range []struct {
		name    string
		arrange func(s *faketx.Store)
		then    http.HandlerFunc
		status  int // 0: it panics
		problem *wantProblem
		kept    bool // else the next try runs
	}{
		{name: "not found", then: acts(status(404), write("mine")), status: 404, kept: true},
		{name: "not final", then: acts(status(429), write("mine")), status: 429},
		{name: "not to be kept", status: 202, then: func(w http.ResponseWriter, r *http.Request) {
			latch.DoNotKeep(r.Context())
			w.WriteHeader(202)
		}},
		{name: "a panic behind an answer", then: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); panic(http.ErrAbortHandler) }},
		{name: "the commit comes late", problem: tryAgain, arrange: commits(faketx.Late(time.Second))},
		{name: "flushed", status: 201, kept: true, then: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			for range 3 {
				_, _ = io.WriteString(w, "part")
				require.NoError(t, http.NewResponseController(w).Flush())
			}
		}},
		{name: "too long", problem: rolledBack, then: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Mine", "1")
			_, err := io.WriteString(w, strings.Repeat("x", 101))
			if err == nil {
				panic("it was written")
			}
			_, _ = io.WriteString(w, "more")
			_ = http.NewResponseController(w).Flush()
		}},
		{name: "an error that is too long", problem: rolledBack, then: acts(status(502), long)},
		{name: "too long, and it panics", then: func(w http.ResponseWriter, _ *http.Request) {
			if _, err := io.WriteString(w, strings.Repeat("x", 101)); err != nil {
				panic(http.ErrAbortHandler)
			}
		}},
		{name: "another protocol", problem: rolledBack, then: acts(status(101), write("mine"))},
		{name: "a hijack", status: 201, kept: true, then: func(w http.ResponseWriter, _ *http.Request) {
			if _, _, err := http.NewResponseController(w).Hijack(); err == nil {
				panic("it was hijacked")
			}
			w.WriteHeader(201)
		}},
		{name: "an early hint", status: 201, kept: true, then: acts(status(103), status(201))},
	} {
		parallel.Run(t, tt.name, func(t *testing.T) {
			txBubble(t, func(t *testing.T, s *faketx.Store, guards [2]guardFunc) {
				if tt.arrange != nil {
					tt.arrange(s)
				}
				began := time.Now()
				first := txServe(t, s, guards[0](order(t, "mine", tt.then)), keyed("k"))
				require.LessOrEqual(t, time.Since(began), 2*txBudget+50*time.Millisecond)
				switch {
				case tt.problem != nil:
					requireProblem(t, *tt.problem, first)
					require.Empty(t, first.Header().Get("X-Mine"))
				case tt.status == 0:
					require.Nil(t, first)
				default:
					require.Equal(t, tt.status, first.Code)
				}
				if tt.kept {
					require.Equal(t, []string{"mine"}, s.Effects())
				} else {
					require.Empty(t, s.Effects())
				}
				for i, guard := range guards {
					again := txServe(t, s, guard(order(t, "next", nil)), keyed("k"))
					if tt.kept || i > 0 {
						requireReplay(t, first, again)
					} else {
						require.Equal(t, 201, again.Code)
						require.Equal(t, "next", again.Body.String())
						first = again
					}
				}
				time.Sleep(time.Minute)
				require.Len(t, s.Effects(), 1)
			}, latch.WithBodyLimits(100, 100))
		})
	}
}

// A client that repeats until it is answered gets the true answer, and one row.
func TestTransactionThatIsUnconfirmed(t *testing.T) {
	t.Parallel()
	for name, commit := range map[string]faketx.Fault{"applied": faketx.HangReply, "not applied": faketx.Hang} {
		parallel.Run(t, name, func(t *testing.T) {
			txBubble(t, func(t *testing.T, s *faketx.Store, guards [2]guardFunc) {
				s.Next(faketx.Commit, commit)
				s.Every(faketx.Outcome, faketx.Hang)
				time.AfterFunc(5*time.Second, func() { s.Every(faketx.Outcome, nil) })
				first := serve(guards[0](order(t, "mine", nil)), keyed("k"))
				requireProblem(t, wantProblem{503, "unconfirmed", "1", ""}, first)
				runs, began := 0, time.Now()
				h := guards[0](order(t, "next", func(w http.ResponseWriter, _ *http.Request) {
					runs++
					w.WriteHeader(201)
				}))
				var again *httptest.ResponseRecorder
				for again = serve(h, keyed("k")); again.Code != 201; again = serve(h, keyed("k")) {
					require.Equal(t, "1", again.Header().Get("Retry-After"), again.Body)
					time.Sleep(time.Second)
				}
				require.Less(t, time.Since(began), 15*time.Second)
				if name == "applied" {
					require.Equal(t, []string{"mine"}, s.Effects())
					require.Zero(t, runs)
				} else {
					require.Equal(t, []string{"next"}, s.Effects())
					require.Equal(t, 1, runs)
				}
			})
		})
	}
}

// Requests that wait behind a request that is rolled back get its answer, or run.
func TestWaitersBehindATransaction(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		s := faketx.New()
		l := newLocker(t, s, lock.WithTransaction(), lock.WithWait(time.Minute), lock.WithLogger(quiet))
		runs := 0
		h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			_ = faketx.Insert(r.Context(), fmt.Sprint(runs))
			time.Sleep(time.Second)
			w.WriteHeader([]int{0, 500, 201}[runs])
		}))
		answers := make(chan *httptest.ResponseRecorder)
		for range 10 {
			go func() { answers <- serve(h, keyed("k")) }()
		}
		for range 10 {
			require.Equal(t, 500, (<-answers).Code)
		}
		require.Equal(t, 1, runs)
		require.Empty(t, s.Effects())
		require.Equal(t, 201, serve(h, keyed("k")).Code)
		require.Equal(t, []string{"2"}, s.Effects())
		require.NoError(t, l.Close(t.Context()))
	})
}

// A refusal by a guard further in is rolled back, with all that was written around it.
func TestRefusalInATransaction(t *testing.T) {
	t.Parallel()
	txBubble(t, func(t *testing.T, s *faketx.Store, guards [2]guardFunc) {
		locks := newLocker(t, s, lock.WithLogger(quiet))
		e := must.Get(locks.Acquire(t.Context(), lock.Key("user", "42")))(t)
		h := guards[0](order(t, "before", latch.Lock(locks, "user", byUser)(order(t, "mine", nil)).ServeHTTP))
		requireProblem(t, wantProblem{409, "held", "1", ""}, txServe(t, s, h, keyed("k")))
		require.Empty(t, s.Effects())
		require.NoError(t, e.Release(t.Context()))
		require.Equal(t, 201, txServe(t, s, h, keyed("k")).Code)
		require.Equal(t, []string{"before", "mine"}, s.Effects())
		require.NoError(t, locks.Close(t.Context()))
	})
}

// After lock.Commit a failure rolls back the rows, and never frees the key.
func TestCommitOfARequestInATransaction(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]http.HandlerFunc{
		"a panic":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"too long": acts(write(strings.Repeat("x", 101))),
	} {
		parallel.Run(t, name, func(t *testing.T) {
			txBubble(t, func(t *testing.T, s *faketx.Store, guards [2]guardFunc) {
				first := txServe(t, s, guards[0](order(t, "mine", func(w http.ResponseWriter, r *http.Request) {
					require.Empty(t, s.Effects())
					require.NoError(t, lock.Commit(r.Context()))
					then(w, r)
				})), keyed("k"))
				for _, guard := range guards {
					again := txServe(t, s, guard(mustNotRun(t)), keyed("k"))
					requireProblem(t, wantProblem{409, "result-not-replayable", "", ""}, again)
				}
				require.Empty(t, s.Effects())
				require.True(t, first == nil || first.Code == 500)
			}, latch.WithBodyLimits(100, 100))
		})
	}
}

func TestTransactionsDoNotFailOpen(t *testing.T) {
	t.Parallel()
	l := lock.New(faketx.New(), lock.WithTransaction())
	require.Panics(t, func() { once(l, latch.WithFailOpen()) })
}

// The log line about an answer that cannot be sent has advice.
func TestTransactionTooLongIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l := newLocker(t, faketx.New(), lock.WithTransaction(), lock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), patient, lock.WithLease(time.Minute))
	long := once(l, latch.WithBodyLimits(100, 100))(acts(write(strings.Repeat("x", 101))))
	require.Equal(t, 500, serve(long, keyed("k")).Code)
	require.Contains(t, log.String(), "WithBodyLimits")
	require.NotContains(t, log.String(), "savepoint")
	log.Reset()
	short := once(l)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _ = faketx.Fail(r.Context()) }))
	require.Equal(t, 500, serve(short, keyed("k")).Code)
	require.Contains(t, log.String(), "savepoint")
	require.NotContains(t, log.String(), "WithBodyLimits")
}

// A run that has lost its lease leaves nothing: its client gets the answer of its successor, or has to ask again.
func TestTransactionThatLostItsLease(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"it succeeds": 201, "it fails": 503, "it does not begin": 0} {
		for _, settled := range []bool{true, false} {
			txBubble(t, func(t *testing.T, s *faketx.Store, guards [2]guardFunc) {
				proceed := make(chan struct{})
				their := make(chan *httptest.ResponseRecorder, 1)
				pause := func() {
					s.Every(faketx.Renew, faketx.LoseRequest)
					time.Sleep(txLease + time.Second)
					s.Every(faketx.Renew, nil)
					theirs := order(t, "theirs", func(w http.ResponseWriter, _ *http.Request) {
						if !settled {
							<-proceed
						}
						w.WriteHeader(202)
					})
					go func() { their <- serve(guards[1](theirs), keyed("k")) }()
					synctest.Wait()
				}
				if status == 0 {
					s.Next(faketx.Begin, func(context.Context, func() error) error { pause(); return errors.New("connection reset") })
				}
				first := serve(guards[0](order(t, "mine", func(w http.ResponseWriter, _ *http.Request) {
					pause()
					w.WriteHeader(status)
				})), keyed("k"))
				close(proceed)
				other := <-their
				require.Equal(t, 202, other.Code)
				switch {
				case settled:
					requireReplay(t, other, first)
				case status == 503:
					require.Equal(t, status, first.Code, "as the handler says")
				default:
					requireProblem(t, wantProblem{409, "in-progress", "1", ""}, first)
				}
				require.Equal(t, []string{"theirs"}, s.Effects(), name)
			})
		}
	}
}
