package lock_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// txBubble runs a test in virtual time over a database in memory, and ends by closing the Lockers and
// checking that no transaction is open.
func txBubble(t *testing.T, run func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := faketx.New()
		open, closeAll := opener(s, inTransactions...)
		run(t, s, open)
		closeAll(t)
		require.Zero(t, s.Open(), "transactions that have not ended")
	})
}

var inTransactions = []lock.Option{lock.WithKeep(keep), lock.WithTransaction()}

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
	err = errors.New("it panicked, or ended its goroutine")
	onItsOwn(func() {
		var b []byte
		b, replayed, err = l.Once(t.Context(), key, print1, fn)
		receipt = string(b)
	})
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
	type meets = map[faketx.Step][]faketx.Fault
	after := func(then func(ctx context.Context) ([]byte, error)) func(ctx context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) {
			_, _ = insert("mine")(ctx)
			return then(ctx)
		}
	}
	mine, fails := insert("mine"), after(func(context.Context) ([]byte, error) { return nil, errWork })
	panics := func(ctx context.Context, apply func() error) error { _ = apply(); return faketx.Panic(ctx, apply) }
	commit := func(f faketx.Fault) meets { return meets{faketx.Commit: {f}} }
	begin := func(f faketx.Fault) meets { return meets{faketx.Begin: {f}} }
	rollback := func(f faketx.Fault) meets { return meets{faketx.Rollback: {f}} }
	for name, tt := range map[string]struct {
		work    func(ctx context.Context) ([]byte, error)
		meets   meets
		there   string        // the receipt that is left, "" if none
		is, not error         // of the error of the call; nil: there is none
		within  time.Duration // virtual
	}{
		"it commits":            {work: mine, there: "mine"},
		"it fails":              {work: fails, is: errWork},
		"it panics":             {work: after(func(context.Context) ([]byte, error) { panic("as the test wants") }), is: errAny},
		"it ends its goroutine": {work: after(func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil }), is: errAny},
		"a statement has failed, and the work does not say so": {
			work: after(func(ctx context.Context) ([]byte, error) { _ = faketx.Fail(ctx); return []byte("mine"), nil }),
			is:   lock.ErrNotApplied, not: lock.ErrUnavailable,
		},

		"the commit is applied, and its answer lost":  {work: mine, meets: commit(faketx.LoseReply), there: "mine"},
		"the commit is applied, and there is silence": {work: mine, meets: commit(faketx.HangReply), there: "mine", within: 2 * budget},
		"the commit takes long":                       {work: mine, meets: commit(faketx.Late(budget / 2)), there: "mine", within: 2 * budget},
		"the commit is lost":                          {work: mine, meets: commit(faketx.LoseRequest), is: lock.ErrUnavailable},
		"the commit never arrives":                    {work: mine, meets: commit(faketx.Hang), is: lock.ErrUnavailable, within: 2 * budget},
		"the commit comes late":                       {work: mine, meets: commit(faketx.Late(4 * budget)), is: lock.ErrUnavailable, within: 2 * budget},
		"the store panics in the commit":              {work: mine, meets: commit(faketx.Panic), is: lock.ErrUnavailable},
		"a serialization failure":                     {work: mine, meets: commit(faketx.Conflict), is: lock.ErrUnavailable},
		"and it is asked in vain at first": {
			work: mine, there: "mine", within: 2 * budget,
			meets: meets{faketx.Commit: {faketx.LoseReply}, faketx.Outcome: {faketx.LoseRequest, faketx.Panic, faketx.LoseReply}},
		},

		"no connection":                     {work: mustNotRun, meets: begin(faketx.Refuse(nil)), is: lock.ErrUnavailable},
		"a connection that is lost at once": {work: mustNotRun, meets: begin(faketx.LoseRequest), is: io.EOF},
		"the store panics in Begin":         {work: mustNotRun, meets: begin(faketx.Panic), is: lock.ErrUnavailable},
		"the transaction is denied":         {work: mustNotRun, meets: begin(faketx.Refuse(lock.ErrDenied)), is: lock.ErrDenied},
		"the rollback gets no answer":       {work: fails, meets: rollback(faketx.HangReply), is: errWork, within: budget},
		"the store panics in the rollback":  {work: fails, meets: rollback(panics), is: errWork},
	} {
		t.Run(name, func(t *testing.T) {
			txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
				l, other := open(), open()
				for step, faults := range tt.meets {
					s.Next(step, faults...)
				}
				began := time.Now()
				receipt, replayed, err := once(t, l, tt.work)
				require.False(t, replayed)
				require.LessOrEqual(t, time.Since(began), tt.within+50*time.Millisecond)
				requireIs(t, err, tt.is)
				require.Equal(t, tt.there, receipt)
				require.NotErrorIs(t, err, lock.ErrUnknown)
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

// unknownCommit runs work whose commit meets a fault, and whose outcome is not found out until the fault of
// faketx.Outcome ends.
func unknownCommit(t *testing.T, s *faketx.Store, l *lock.Locker, commit faketx.Fault) {
	t.Helper()
	s.Next(faketx.Commit, commit)
	s.Every(faketx.Outcome, faketx.Hang)
	began := time.Now()
	_, _, err := once(t, l, insert("mine"))
	require.ErrorIs(t, err, lock.ErrUnknown)
	require.LessOrEqual(t, time.Since(began), 2*budget+50*time.Millisecond)
}

// The answer of a commit that is known to no one is refused, found out, and then given.
func TestTransactionOfUnknownOutcome(t *testing.T) {
	for name, commit := range map[string]faketx.Fault{"applied": faketx.HangReply, "not applied": faketx.Hang, "late": faketx.Late(time.Minute)} {
		t.Run(name, func(t *testing.T) {
			txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
				l, other := open(), open()
				unknownCommit(t, s, l, commit)
				time.Sleep(5 * lease) // it is renewed, and nothing is known
				settles := s.Count(faketx.Commit)
				if name == "applied" {
					next(t, s, "mine", other)
					s.Every(faketx.Outcome, nil)
					next(t, s, "mine", l, other)
				} else {
					require.Empty(t, s.Effects())
					require.ErrorIs(t, ask(t, other, print1), lock.ErrHeld)
					s.Every(faketx.Outcome, nil)
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

func TestCloseWaitsForTheOutcome(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		unknownCommit(t, s, l, faketx.Hang)
		time.AfterFunc(10*time.Second, func() { s.Every(faketx.Outcome, nil) })
		began := time.Now()
		require.NoError(t, l.Close(t.Context()))
		require.InDelta(t, 10, time.Since(began).Seconds(), 1)
		next(t, s, "", other)
	})
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		unknownCommit(t, s, l, faketx.HangReply)
		ctx := within(t, 5*time.Second)
		require.ErrorContains(t, l.Close(ctx), "clean-ups", "it does not hang")
		next(t, s, "mine", open())
	})
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		ctx := within(t, budget/2)
		var working sync.WaitGroup
		working.Go(func() { unknownCommit(t, s, l, faketx.HangReply) })
		synctest.Wait()
		require.ErrorContains(t, l.Close(ctx), "1 leases still worked under")
		working.Wait()
		require.NoError(t, l.Close(t.Context()), "what became unknown after Close is given up")
	})
}

// Work without a receipt did not happen: after a crash the key is free with its lease, and the next
// run is the first.
func TestTransactionOfAProcessThatDied(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		txCrash(t, s, nil)
		l := open()
		require.ErrorIs(t, ask(t, l, print1), lock.ErrHeld)
		time.Sleep(lease)
		next(t, s, "", l, open())
	})
}

// txCrash ends a process in the middle of its work, after middle has run.
func txCrash(t *testing.T, s *faketx.Store, middle func(ctx context.Context), opts ...lock.Option) {
	t.Helper()
	l := lock.New(s, slices.Concat(ofBubble, inTransactions, opts)...)
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
		require.Equal(t, "mine", must.Run(t)(l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			time.Sleep(2 * lease)
			return insert("mine")(ctx)
		})), "no other has taken the key")
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
					startRun(other, func(ctx context.Context) ([]byte, error) {
						<-proceed
						return insert("next")(ctx)
					})
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

// Callers that wait behind a commit without effect run themselves.
func TestWaitersBehindATransaction(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithWait(time.Minute))
		s.Next(faketx.Commit, faketx.Conflict)
		first := make(chan error, 1)
		go func() {
			_, _, err := once(t, l, func(ctx context.Context) ([]byte, error) {
				time.Sleep(time.Second)
				return insert("mine")(ctx)
			})
			first <- err
		}()
		synctest.Wait()
		requireEach(t, nil, meet(10, func(int) error {
			receipt, _, err := l.Once(t.Context(), key, print1, insert("waiter"))
			assert.Equal(t, "waiter", string(receipt))
			return err
		}))
		require.Error(t, <-first)
		require.Equal(t, []string{"waiter"}, s.Effects())
	})
}

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
		must.Run(t)(l.With(lock.WithKeep(time.Second)).Once(t.Context(), "of a derived one", nil, insert("row")))
		require.Equal(t, []string{"row"}, s.Effects())
	})
}

func TestTransactionsThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, s := range []lock.Store{memstore.New(), plain{faketx.New()}} {
		require.PanicsWithValue(t, "lock: WithTransaction: "+lock.Describe(s).NoTransactions.Error(), func() { lock.New(s, lock.WithTransaction()) })
		require.Panics(t, func() { lock.New(s).With(lock.WithTransaction()) })
		require.ErrorContains(t, lock.New(s).Validate(lock.WithTransaction()), "WithTransaction: "+lock.Describe(s).NoTransactions.Error())
	}
	l := lock.New(faketx.New(), lock.WithTransaction())
	require.ErrorContains(t, l.Validate(lock.WithFailOpen()), "WithFailOpen")
	require.Panics(t, func() { l.With(lock.WithFailOpen()) })
	require.NoError(t, l.Validate(lock.WithFailOpen(), lock.WithFailClosed()))
}
