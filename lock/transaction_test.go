package lock_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// txBubble runs a test in virtual time over a database in memory, and ends by closing the Lockers and
// checking that no transaction is open.
func txBubble(t *testing.T, run func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := faketx.New()
		var lockers []*lock.Locker
		run(t, s, func(opts ...lock.Option) *lock.Locker {
			l := lock.New(s, append(txOptions(), opts...)...)
			lockers = append(lockers, l)
			return l
		})
		for _, l := range lockers {
			require.NoError(t, l.Close(t.Context()))
		}
		synctest.Wait()
		require.Zero(t, s.Open(), "transactions that have not ended")
	})
}

func txOptions() []lock.Option {
	return []lock.Option{
		lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithMaxHold(time.Minute),
		lock.WithKeep(keep), lock.WithTransaction(),
	}
}

// insert is work that inserts row, and answers with it.
func insert(row string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		if lock.Attempt(ctx) != 1 {
			return nil, errors.New("not the first attempt")
		}
		return []byte(row), faketx.Insert(ctx, row)
	}
}

// once makes a call of Once, and recovers from panics in it.
func once(t *testing.T, l *lock.Locker, fn func(context.Context) ([]byte, error)) (receipt string, replayed bool, err error) {
	t.Helper()
	done := make(chan struct{})
	err = errors.New("it panicked, or ended its goroutine")
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		var b []byte
		b, replayed, err = l.Once(t.Context(), key, print1, fn)
		receipt = string(b)
	}()
	<-done
	return receipt, replayed, err
}

// next makes the next call of this process, and of another one, at the same time. Both must get the
// same receipt: there, or, if there is "", the receipt of a new run.
func next(t *testing.T, s *faketx.Store, there string, lockers ...*lock.Locker) {
	t.Helper()
	want := there
	if there == "" {
		want = "next"
	}
	for i, l := range lockers {
		receipt, replayed, err := once(t, l, insert("next"))
		require.NoError(t, err)
		require.Equal(t, want, receipt)
		require.Equal(t, there != "" || i > 0, replayed)
	}
	require.Equal(t, []string{want}, s.Effects())
}

var errWork = errors.New("the work has failed")

// Each outcome of a commit that is decided while the caller waits. In each the next
// call gets an answer at once, and there is one effect in the end.
func TestTransaction(t *testing.T) {
	for _, tt := range []struct {
		name    string
		arrange func(s *faketx.Store)
		work    func(ctx context.Context) ([]byte, error) // nil: insert "mine"
		there   string                                    // the receipt that is left, "" if none
		is, not error                                     // of the error of the call; nil: there is none
		within  time.Duration                             // virtual
	}{
		{name: "it commits", there: "mine"},
		{name: "it fails", work: func(ctx context.Context) ([]byte, error) {
			_, _ = insert("mine")(ctx)
			return nil, errWork
		}, is: errWork},
		{name: "it panics", work: func(ctx context.Context) ([]byte, error) {
			_, _ = insert("mine")(ctx)
			panic("as the test wants")
		}, is: errAny},
		{name: "it ends its goroutine", work: func(ctx context.Context) ([]byte, error) {
			_, _ = insert("mine")(ctx)
			runtime.Goexit()
			return nil, nil
		}, is: errAny},
		{
			name: "the commit is applied, and its answer lost", there: "mine",
			arrange: func(s *faketx.Store) { s.Next(faketx.Commit, faketx.LoseReply) },
		},
		{
			name: "the commit is applied, and there is silence", there: "mine", within: 2 * budget,
			arrange: func(s *faketx.Store) { s.Next(faketx.Commit, faketx.HangReply) },
		},
		{
			name: "the commit is lost", is: lock.ErrUnavailable, not: lock.ErrUnknown,
			arrange: func(s *faketx.Store) { s.Next(faketx.Commit, faketx.LoseRequest) },
		},
		{
			name: "the commit never arrives", is: lock.ErrUnavailable, not: lock.ErrUnknown, within: 2 * budget,
			arrange: func(s *faketx.Store) { s.Next(faketx.Commit, faketx.Hang) },
		},
		{
			name: "the commit comes late", is: lock.ErrUnavailable, not: lock.ErrUnknown, within: 2 * budget,
			arrange: func(s *faketx.Store) { s.Next(faketx.Commit, faketx.Late(4*budget)) },
		},
		{
			name: "the commit takes long", there: "mine", within: 2 * budget,
			arrange: func(s *faketx.Store) { s.Next(faketx.Commit, faketx.Late(budget/2)) },
		},
		{
			name: "the store panics in the commit", is: lock.ErrUnavailable, not: lock.ErrUnknown,
			arrange: func(s *faketx.Store) { s.Next(faketx.Commit, faketx.Panic) },
		},
		{
			name: "and it is asked in vain at first", there: "mine", within: 2 * budget,
			arrange: func(s *faketx.Store) {
				s.Next(faketx.Commit, faketx.LoseReply)
				s.Next(faketx.Outcome, faketx.LoseRequest, faketx.Panic, faketx.LoseReply)
			},
		},
		{
			name: "a serialization failure", is: lock.ErrUnavailable, not: lock.ErrUnknown,
			arrange: func(s *faketx.Store) { s.Next(faketx.Commit, faketx.Conflict) },
		},
		{name: "a statement has failed, and the work does not say so", work: func(ctx context.Context) ([]byte, error) {
			_, _ = insert("mine")(ctx)
			_ = faketx.Fail(ctx)
			return []byte("mine"), nil
		}, is: lock.ErrNotApplied, not: lock.ErrUnavailable},
		{
			name: "no connection", is: lock.ErrUnavailable, not: lock.ErrUnknown, work: mustNotRun,
			arrange: func(s *faketx.Store) { s.Next(faketx.Begin, faketx.Refuse(nil)) },
		},
		{
			name: "a connection that is lost at once", is: io.EOF, not: lock.ErrUnknown, work: mustNotRun,
			arrange: func(s *faketx.Store) { s.Next(faketx.Begin, faketx.LoseRequest) },
		},
		{
			name: "the store panics in Begin", is: lock.ErrUnavailable, work: mustNotRun,
			arrange: func(s *faketx.Store) { s.Next(faketx.Begin, faketx.Panic) },
		},
		{
			name: "the transaction is denied", is: lock.ErrDenied, work: mustNotRun,
			arrange: func(s *faketx.Store) { s.Next(faketx.Begin, faketx.Refuse(lock.ErrDenied)) },
		},
		{
			name: "the rollback gets no answer", is: errWork, within: budget,
			work: func(ctx context.Context) ([]byte, error) {
				_, _ = insert("mine")(ctx)
				return nil, errWork
			},
			arrange: func(s *faketx.Store) { s.Next(faketx.Rollback, faketx.HangReply) },
		},
		{
			name: "the store panics in the rollback", is: errWork,
			work: func(context.Context) ([]byte, error) { return nil, errWork },
			arrange: func(s *faketx.Store) {
				s.Next(faketx.Rollback, func(ctx context.Context, apply func() error) error { _ = apply(); return faketx.Panic(ctx, apply) })
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
				l, other := open(), open()
				if tt.arrange != nil {
					tt.arrange(s)
				}
				work, began := tt.work, time.Now()
				if work == nil {
					work = insert("mine")
				}
				receipt, replayed, err := once(t, l, work)
				require.False(t, replayed)
				require.LessOrEqual(t, time.Since(began), tt.within+50*time.Millisecond)
				requireIs(t, err, tt.is)
				if tt.is == nil {
					require.Equal(t, "mine", receipt)
				} else {
					require.Empty(t, receipt)
				}
				if tt.not != nil {
					require.NotErrorIs(t, err, tt.not)
				}
				if tt.there != "" {
					require.Equal(t, []string{tt.there}, s.Effects())
				} else {
					require.Empty(t, s.Effects())
				}
				next(t, s, tt.there, other, l)
				time.Sleep(10 * lease)
				next(t, s, s.Effects()[0], l, other)
			})
		})
	}
}

// errAny stands for any error.
var errAny = errors.New("any")

// requireIs checks that err matches want, or is nil if want is.
func requireIs(t *testing.T, err, want error) {
	t.Helper()
	switch {
	case want == nil:
		require.NoError(t, err)
	case errors.Is(want, errAny):
		require.Error(t, err)
	default:
		require.ErrorIs(t, err, want)
	}
}

func mustNotRun(context.Context) ([]byte, error) { panic("it must not run") }

// The answer of a commit that is known to no one is refused, found out, and then given.
func TestTransactionOfUnknownOutcome(t *testing.T) {
	for name, commit := range map[string]faketx.Fault{"applied": faketx.HangReply, "not applied": faketx.Hang, "late": faketx.Late(time.Minute)} {
		t.Run(name, func(t *testing.T) {
			txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
				l, other := open(), open()
				s.Next(faketx.Commit, commit)
				s.Every(faketx.Outcome, faketx.Hang)
				began := time.Now()
				_, _, err := once(t, l, insert("mine"))
				require.ErrorIs(t, err, lock.ErrUnknown)
				require.LessOrEqual(t, time.Since(began), 2*budget+50*time.Millisecond)

				time.Sleep(5 * lease) // it is renewed, and nothing is known
				if name == "applied" {
					next(t, s, "mine", other)
				} else {
					require.Empty(t, s.Effects())
					_, _, err = once(t, other, mustNotRun)
					require.ErrorIs(t, err, lock.ErrHeld)
				}
				settles := s.Count(faketx.Commit)
				s.Every(faketx.Outcome, nil)
				if name == "applied" {
					next(t, s, "mine", l, other)
				} else {
					time.Sleep(6 * time.Second)
					next(t, s, "", l, other)
				}
				require.LessOrEqual(t, s.Count(faketx.Commit), settles+1, "a commit is sent once")
				time.Sleep(2 * time.Minute)
				require.Len(t, s.Effects(), 1)
			})
		})
	}
}

// Close waits for an unknown outcome.
func TestCloseWaitsForTheOutcome(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		s.Next(faketx.Commit, faketx.Hang)
		s.Every(faketx.Outcome, faketx.Hang)
		_, _, err := once(t, l, insert("mine"))
		require.ErrorIs(t, err, lock.ErrUnknown)
		time.AfterFunc(10*time.Second, func() { s.Every(faketx.Outcome, nil) })
		began := time.Now()
		require.NoError(t, l.Close(t.Context()))
		require.InDelta(t, 10, time.Since(began).Seconds(), 1)
		next(t, s, "", other)
	})
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Next(faketx.Commit, faketx.HangReply)
		s.Every(faketx.Outcome, faketx.Hang)
		_, _, err := once(t, l, insert("mine"))
		require.ErrorIs(t, err, lock.ErrUnknown)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.ErrorContains(t, l.Close(ctx), "clean-ups", "it does not hang")
		next(t, s, "mine", open())
	})
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Next(faketx.Commit, faketx.HangReply)
		s.Every(faketx.Outcome, faketx.Hang)
		ctx, cancel := context.WithTimeout(t.Context(), budget/2)
		defer cancel()
		var failed error
		var working sync.WaitGroup
		working.Go(func() { _, _, failed = once(t, l, insert("mine")) })
		synctest.Wait()
		require.ErrorContains(t, l.Close(ctx), "1 leases still worked under")
		working.Wait()
		require.ErrorIs(t, failed, lock.ErrUnknown)
		require.NoError(t, l.Close(t.Context()), "what became unknown after Close is given up")
	})
}

// Work without a receipt did not happen: after a crash the key is free with its lease, and the next
// run is the first.
func TestTransactionOfAProcessThatDied(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		txCrash(t, s, nil)
		l := open()
		_, _, err := once(t, l, mustNotRun)
		require.ErrorIs(t, err, lock.ErrHeld)
		time.Sleep(lease)
		next(t, s, "", l, open())
	})
}

// txCrash ends a process in the middle of its work, after middle has run.
func txCrash(t *testing.T, s *faketx.Store, middle func(ctx context.Context), opts ...lock.Option) {
	t.Helper()
	l := lock.New(s, append(txOptions(), opts...)...)
	gone := make(chan struct{})
	go func() {
		_, _, _ = l.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
			_ = faketx.Insert(ctx, "of the dead")
			if middle != nil {
				middle(ctx)
			}
			for _, step := range []faketx.Step{faketx.Claim, faketx.Release, faketx.Renew, faketx.Settle} {
				s.Every(step, faketx.Refuse(errors.New("dead")))
			}
			close(gone)
			return nil, errWork // the server rolls back
		})
	}()
	<-gone
	synctest.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = l.Close(ctx)
	time.Sleep(2 * budget)
	for _, step := range []faketx.Step{faketx.Claim, faketx.Release, faketx.Renew, faketx.Settle} {
		s.Every(step, nil)
	}
}

// After the end of a lease, the transaction fails only if another caller has used the key.
func TestTransactionThatOutlivesItsLease(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithMaxHold(lease))
		receipt, _, err := once(t, l, func(ctx context.Context) ([]byte, error) {
			time.Sleep(2 * lease)
			return insert("mine")(ctx)
		})
		require.NoError(t, err, "no other has taken the key")
		require.Equal(t, "mine", receipt)
		next(t, s, "mine", l, open())
	})
	for _, settles := range []bool{true, false} {
		txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
			l, other := open(lock.WithMaxHold(lease)), open()
			proceed := make(chan struct{})
			receipt, replayed, err := once(t, l, func(ctx context.Context) ([]byte, error) {
				time.Sleep(lease)
				if settles {
					next(t, s, "", other)
				} else {
					go func() {
						_, _, _ = other.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
							<-proceed
							return insert("next")(ctx)
						})
					}()
					synctest.Wait()
				}
				return insert("mine")(ctx)
			})
			if settles {
				require.NoError(t, err)
				require.True(t, replayed)
				require.Equal(t, "next", receipt, "there is one answer")
			} else {
				require.ErrorIs(t, err, lock.ErrLost)
				require.Empty(t, s.Effects())
			}
			close(proceed)
			synctest.Wait()
			next(t, s, "next", l, other)
		})
	}
}

// Callers that wait behind work that fails get its error. Callers behind a commit without effect
// run themselves.
func TestWaitersBehindATransaction(t *testing.T) {
	const waiters = 10
	for _, fails := range []bool{true, false} {
		txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithWait(time.Minute))
			if !fails {
				s.Next(faketx.Commit, faketx.Conflict)
			}
			began := make(chan struct{})
			go func() {
				<-began
				errs := meet(waiters, func(int) error {
					receipt, replayed, err := l.Once(t.Context(), key, print1, insert("waiter"))
					if !fails && string(receipt) != "waiter" {
						err = errors.Join(err, errors.New("not its answer"))
					}
					if fails && !replayed {
						err = errors.New("it ran")
					}
					return err
				})
				for _, err := range errs {
					if fails {
						assert.ErrorIs(t, err, errWork)
					} else {
						assert.NoError(t, err)
					}
				}
			}()
			_, _, err := once(t, l, func(ctx context.Context) ([]byte, error) {
				close(began)
				time.Sleep(time.Second)
				_, _ = insert("mine")(ctx)
				if fails {
					return nil, errWork
				}
				return []byte("mine"), nil
			})
			require.Error(t, err)
			synctest.Wait()
			time.Sleep(time.Second)
			if fails {
				require.Empty(t, s.Effects())
			} else {
				require.Equal(t, []string{"waiter"}, s.Effects())
			}
		})
	}
}

// A run without effects is settled like any other, and one for another request is refused
// while it is open.
func TestTransactionWithoutEffects(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		_, _, err := once(t, l, func(context.Context) ([]byte, error) {
			for _, l := range []*lock.Locker{l, other} {
				_, _, err := l.Once(t.Context(), key, print2, mustNotRun)
				require.ErrorIs(t, err, lock.ErrMismatch)
				_, _, err = l.Once(t.Context(), key, print1, mustNotRun)
				require.ErrorIs(t, err, lock.ErrHeld)
			}
			return []byte("nothing"), nil
		})
		require.NoError(t, err)
		require.Empty(t, s.Effects())
		for _, l := range []*lock.Locker{l, other} {
			receipt, replayed, err := once(t, l, mustNotRun)
			require.NoError(t, err)
			require.True(t, replayed)
			require.Equal(t, "nothing", receipt)
		}
	})
}

// Locks and cool-downs have no transaction.
func TestNoTransactionForLocks(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		require.NoError(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			require.Error(t, faketx.Insert(ctx, "row"))
			return nil
		}))
		e := acquired(t, l, key)
		require.NoError(t, e.Settle(t.Context(), nil, time.Second))
		require.Zero(t, s.Count(faketx.Begin))
		_, _, err := l.With(lock.WithKeep(time.Second)).Once(t.Context(), "of a derived one", nil, insert("row"))
		require.NoError(t, err)
		require.Equal(t, []string{"row"}, s.Effects())
	})
}

func TestTransactionsThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, s := range []lock.Store{memstore.New(), plain{faketx.New()}} {
		require.PanicsWithValue(t, "lock: WithTransaction: "+lock.Describe(s).NoTransactions.Error(), func() { lock.New(s, lock.WithTransaction()) })
		require.Panics(t, func() { lock.New(s).With(lock.WithTransaction()) })
	}
	l := lock.New(faketx.New(), lock.WithTransaction())
	require.ErrorContains(t, l.Validate(lock.WithFailOpen()), "WithFailOpen")
	require.Panics(t, func() { l.With(lock.WithFailOpen()) })
	require.NoError(t, l.Validate(lock.WithFailOpen(), lock.WithFailClosed()))
}
