package lock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

// fullMemory has room for claims and their reserves, and for no large receipt.
func fullMemory() lock.Store { return memstore.New(memstore.WithLimits(1000, 20_000)) }

var large = make([]byte, 100_000)

func answerWith(receipt []byte) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return receipt, nil }
}

// The answer is delivered, its repeats find that there was one, and the key is
// free when the keep is over.
func TestReceiptThatDoesNotFitEndsWithItsKeep(t *testing.T) {
	for name, store := range map[string]func() lock.Store{
		"memory": fullMemory,
		"behind a network": func() lock.Store {
			s := fault.New()
			s.Serve(fullMemory())
			return s
		},
	} {
		for given, fingerprint := range map[string][]byte{"fingerprint": print1, "no fingerprint": nil} {
			t.Run(name+", "+given, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := store()
					l := lock.New(s, lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithKeep(keep))
					receipt, replayed, err := l.Once(t.Context(), key, fingerprint, answerWith(large))
					require.NoError(t, err)
					require.False(t, replayed)
					require.Equal(t, large, receipt)
					for range 10 {
						e := must.Entry(t)(s.Get(t.Context(), record))
						require.Equal(t, lock.Settled, e.State)
						require.Empty(t, must.Replay(t)(l.Once(t.Context(), key, fingerprint, nil)))
						time.Sleep(keep / 11)
					}
					require.Zero(t, l.Stats().Backlog)
					time.Sleep(keep - 10*(keep/11))
					e := must.Entry(t)(s.Get(t.Context(), record))
					require.Equal(t, lock.Free, e.State)
					require.NoError(t, l.Close(t.Context()))
				})
			})
		}
	}
}

func TestSettleSaysThatItsReceiptWasNotKept(t *testing.T) {
	t.Parallel()
	var book logbook
	s := fullMemory()
	l := lock.New(s, book.option())
	e := acquired(t, l, key)
	require.ErrorIs(t, e.Settle(t.Context(), large, keep), lock.ErrFull)
	got := must.Entry(t)(s.Get(t.Context(), key))
	require.Equal(t, lock.Settled, got.State)
	require.Empty(t, got.Receipt)
	require.Len(t, book.lines(), 1)
	require.Contains(t, book.lines()[0], "no room for a receipt")
	require.Contains(t, book.lines()[0], "bytes=100000")
}

// A store that has no room even for that breaks its contract. The work does not
// run again before the keep is over, can be recorded later, and Close does not wait.
func TestStoreThatHasNoRoomForATombstone(t *testing.T) {
	prepare := func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) *lock.Locker {
		t.Helper()
		l := open(lock.WithKeep(keep), lock.WithMaxHold(2*keep))
		s.Every(full, fault.Settle)
		receipt, _, err := l.Once(t.Context(), key, print1, answerWith(large))
		require.NoError(t, err)
		require.Equal(t, large, receipt)
		return l
	}
	bubbleCase(t, "for ever", func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := prepare(t, s, open)
		time.Sleep(keep - time.Second)
		require.NotEqual(t, lock.Free, s.State(t, record).State)
		time.Sleep(10 * time.Second)
		require.Equal(t, lock.Free, s.State(t, record).State)
		time.Sleep(time.Minute)
		require.Zero(t, busy(l))
	})
	bubbleCase(t, "for a while", func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := prepare(t, s, open)
		time.Sleep(keep / 2)
		s.Every(nil, fault.Settle)
		time.Sleep(10 * time.Second)
		require.Equal(t, lock.Settled, s.State(t, record).State)
		require.Zero(t, busy(l))
	})
	bubbleCase(t, "until Close", func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := prepare(t, s, open)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, l.Close(ctx))
		require.NotEqual(t, lock.Free, s.State(t, record).State)
	})
}

// In an outage, receipts wait for the store to come back. They must not fill the
// memory: if there is no room left for a receipt, an empty one is settled in its place.
func TestPendingReceiptsAreBounded(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "fills the bound of pending receipts")
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		const (
			sent  = 100
			bound = 64 << 20
		)
		var book logbook
		l := open(lock.WithKeep(keep), book.option())
		answer := make([]byte, 1<<20)
		before := heap()
		s.Every(fault.LoseRequest, fault.Settle)
		for i := range sent {
			receipt, _, err := l.Once(t.Context(), strconv.Itoa(i), print1, answerWith(answer))
			require.NoError(t, err)
			require.Len(t, receipt, len(answer))
		}
		require.Equal(t, sent, l.Stats().Backlog)
		require.Equal(t, int64(bound), l.Stats().BacklogBytes)
		require.Less(t, heap()-before, int64(bound+8<<20))
		dropped := 0
		for _, line := range book.lines() {
			if strings.Contains(line, "receipts that wait for the store fill their room") {
				dropped++
			}
		}
		require.Equal(t, 1, dropped, "it is logged once a minute")

		s.Every(nil, fault.Settle)
		time.Sleep(10 * time.Second)
		require.Zero(t, busy(l))
		kept := 0
		for i := range sent {
			receipt, replayed, err := l.Once(t.Context(), strconv.Itoa(i), print1, nil)
			require.NoError(t, err)
			require.True(t, replayed)
			if len(receipt) > 0 {
				require.Len(t, receipt, len(answer))
				kept++
			}
		}
		require.Equal(t, bound>>20, kept)
	})
}

// A store that answers at last may be full.
func TestPendingReceiptThatDoesNotFit(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		s.Serve(fullMemory())
		l := open(lock.WithKeep(keep))
		s.Every(fault.LoseRequest, fault.Settle)
		_, _, err := l.Once(t.Context(), key, print1, answerWith(large))
		require.NoError(t, err)
		require.Equal(t, lock.Stats{Active: 1, Backlog: 1, BacklogBytes: int64(len(large))}, busy(l))
		s.Every(nil, fault.Settle)
		time.Sleep(10 * time.Second)
		require.Zero(t, busy(l))
		e := s.State(t, record)
		require.Equal(t, lock.Settled, e.State)
		require.Empty(t, e.Receipt)
	})
}

// A receipt that Close gives up is no longer counted.
func TestPendingReceiptsOfAClosedLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fault.New()
		l := lock.New(apart(s), lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget))
		s.Every(fault.HangRequest, fault.Settle)
		_, _, err := l.Once(t.Context(), key, print1, answerWith(large))
		require.NoError(t, err)
		require.Equal(t, int64(len(large)), l.Stats().BacklogBytes)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, l.Close(ctx))
		synctest.Wait()
		time.Sleep(time.Minute)
		require.Zero(t, busy(l))
	})
}

// same-answer: a receipt that waited for the store was dropped because the store had no room for it, and its
// bytes counted on, so that other receipts were dropped for want of memory.
func TestDroppedReceiptTakesNoMemory(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		e := acquired(t, l, key)
		s.Every(fault.HangRequest, fault.Settle)
		require.ErrorIs(t, e.Settle(t.Context(), make([]byte, 1<<20), time.Hour), lock.ErrUnavailable)
		require.EqualValues(t, 1<<20, l.Stats().BacklogBytes)
		s.Every(func(context.Context, func() error) error { return errors.Join(lock.ErrNotApplied, lock.ErrFull) }, fault.Settle)
		time.Sleep(20 * time.Second)
		require.Zero(t, l.Stats().BacklogBytes)
		require.Equal(t, 1, l.Stats().Backlog)
		s.Free(t, key)
		time.Sleep(3 * lease)
		s.Every(nil)
	})
}

// answered has the results of Once, and the events that it has reported.
type answered struct {
	receipt  string
	replayed bool
	err      string
	events   []lock.Event
}

// asked asks l for the record of key.
func asked(ctx context.Context, l *lock.Locker, key, fingerprint string) (a answered) {
	var observed events
	receipt, replayed, err := l.With(lock.WithObserver(observed.observe)).Once(ctx, key, []byte(fingerprint),
		func(context.Context) ([]byte, error) { return nil, errors.New("it ran") })
	a.receipt, a.replayed = string(receipt), replayed
	if err != nil {
		a.err = err.Error()
	}
	for _, e := range observed.seen {
		e.Err = nil // a.err has the text of the error
		a.events = append(a.events, e)
	}
	return a
}

// The embedded store is asked for a receipt before there is a run. The results and
// events must be the same as over a store for which Once begins a run: the same
// store behind a wrapper without Describe.
func TestAReceiptIsFoundAsByARun(t *testing.T) {
	const work, fingerprint = "order=7", "request"
	cases := map[string]struct {
		opts        []lock.Option
		before      func(ctx context.Context, l *lock.Locker) context.Context // with its receipt there, for a minute
		fingerprint string
		want        string // the receipt; "": none is returned
		ran         bool
	}{
		"it is there":               {fingerprint: fingerprint, want: "receipt"},
		"asked without fingerprint": {want: "receipt"},
		"by one who would wait":     {opts: []lock.Option{lock.WithWait(time.Second)}, fingerprint: fingerprint, want: "receipt"},
		"by one who says who he is": {opts: []lock.Option{lock.WithOrigin(func(context.Context) string { return "trace" })}, fingerprint: fingerprint, want: "receipt"},
		"another request":           {fingerprint: "another"},
		"its keep is over": {fingerprint: fingerprint, ran: true, before: func(ctx context.Context, _ *lock.Locker) context.Context {
			time.Sleep(time.Minute)
			return ctx
		}},
		"the caller has left": {fingerprint: fingerprint, before: func(ctx context.Context, _ *lock.Locker) context.Context {
			ctx, leave := context.WithCancelCause(ctx)
			leave(errors.New("left"))
			return ctx
		}},
		"the Locker is closed": {fingerprint: fingerprint, before: func(ctx context.Context, l *lock.Locker) context.Context {
			_ = l.Close(ctx)
			return ctx
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var said [2]answered
			for i, as := range []func(lock.Store) lock.Store{
				func(s lock.Store) lock.Store { return s },
				func(s lock.Store) lock.Store { return struct{ lock.Store }{s} },
			} {
				synctest.Test(t, func(t *testing.T) {
					l := lock.New(as(memstore.New()), append(c.opts, lock.WithKeep(time.Minute))...)
					_, _, err := l.Once(t.Context(), work, []byte(fingerprint), func(context.Context) ([]byte, error) { return []byte("receipt"), nil })
					require.NoError(t, err)
					ctx := t.Context()
					if c.before != nil {
						ctx = c.before(ctx, l)
					}
					said[i] = asked(ctx, l, work, c.fingerprint)
					require.NoError(t, l.Close(t.Context()))
				})
			}
			require.Equal(t, c.want, said[0].receipt)
			require.Equal(t, c.want != "", said[0].replayed)
			require.Equal(t, c.ran, said[0].err == "it ran")
			require.Equal(t, said[1], said[0])
		})
	}
}

// A store that is asked only for receipts that it has still forgets receipts
// whose keep is over.
func TestReplaysAgeTheStore(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(memstore.New(), lock.WithKeep(time.Minute))
		kept := l.With(lock.WithKeep(time.Hour))
		answer := func(context.Context) ([]byte, error) { return []byte("receipt"), nil }
		for i := range n {
			_, _, err := l.Once(t.Context(), "short="+strconv.Itoa(i), nil, answer)
			require.NoError(t, err)
			_, _, err = kept.Once(t.Context(), "long="+strconv.Itoa(i), nil, answer)
			require.NoError(t, err)
		}
		require.Equal(t, 2*n, l.Stats().Entries)
		time.Sleep(2 * time.Minute)
		for i := range n {
			must.Replay(t)(kept.Once(t.Context(), "long="+strconv.Itoa(i), nil, answer))
		}
		require.Equal(t, n, l.Stats().Entries)
		require.NoError(t, l.Close(t.Context()))
	})
}
