package lock_test

import (
	"context"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/heap"
	"github.com/httplatch/httplatch/internal/testkit/journal"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/internal/testkit/virtual"
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
	away := fault.New()
	away.Serve(fullMemory())
	for name, s := range map[string]lock.Store{"memory": fullMemory(), "behind a network": away} {
		t.Run(name, virtual.Test(func(t *testing.T) {
			l := fault.Locker(t, s, lock.WithKeep(keep))
			receipt, replayed, err := l.Once(t.Context(), key, print1, answerWith(large))
			require.NoError(t, err)
			require.False(t, replayed)
			require.Equal(t, large, receipt)
			for range 10 {
				require.Equal(t, lock.Settled, must.Entry(t)(s.Get(t.Context(), record)).State)
				require.Empty(t, must.Replay(t)(l.Once(t.Context(), key, print1, nil)))
				time.Sleep(keep / 11)
			}
			require.Zero(t, l.Stats().Backlog)
			time.Sleep(keep - 10*(keep/11))
			require.Equal(t, lock.Free, must.Entry(t)(s.Get(t.Context(), record)).State)
		}))
	}
}

func TestSettleSaysThatItsReceiptWasNotKept(t *testing.T) {
	t.Parallel()
	var book journal.Journal
	s := fullMemory()
	l := lock.New(s, lock.WithLogger(book.Logger()))
	e := acquired(t, l, key)
	require.ErrorIs(t, e.Settle(t.Context(), large, keep), lock.ErrFull)
	got := must.Entry(t)(s.Get(t.Context(), key))
	require.Equal(t, lock.Settled, got.State)
	require.Empty(t, got.Receipt)
	require.Len(t, book.Lines(), 1)
	require.Contains(t, book.Lines()[0], "no room for a receipt")
	require.Contains(t, book.Lines()[0], "bytes=100000")
}

// A store that has no room even for that breaks its contract. The work does not
// run again before the keep is over, can be recorded later, and Close does not wait.
func TestStoreThatHasNoRoomForATombstone(t *testing.T) {
	for name, then := range map[string]func(t *testing.T, s *fault.Store, l *lock.Locker){
		"for ever": func(t *testing.T, s *fault.Store, l *lock.Locker) {
			time.Sleep(keep - time.Second)
			require.NotEqual(t, lock.Free, s.State(t, record).State)
			time.Sleep(10 * time.Second)
			require.Equal(t, lock.Free, s.State(t, record).State)
			time.Sleep(time.Minute)
			require.Zero(t, busy(l))
		},
		"for a while": func(t *testing.T, s *fault.Store, l *lock.Locker) {
			time.Sleep(keep / 2)
			s.Every(nil, fault.Settle)
			time.Sleep(10 * time.Second)
			require.Equal(t, lock.Settled, s.State(t, record).State)
			require.Zero(t, busy(l))
		},
		"until Close": func(t *testing.T, s *fault.Store, l *lock.Locker) {
			ctx := within(t, time.Second)
			require.NoError(t, l.Close(ctx))
			require.NotEqual(t, lock.Free, s.State(t, record).State)
		},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithKeep(keep), lock.WithMaxHold(2*keep))
			s.Every(full, fault.Settle)
			require.Equal(t, string(large), must.Run(t)(l.Once(t.Context(), key, print1, answerWith(large))))
			then(t, s, l)
		})
	}
}

// In an outage, receipts wait for the store to come back. They must not fill the
// memory: if there is no room left for a receipt, an empty one is settled in its place.
func TestPendingReceiptsAreBounded(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "fills the bound of pending receipts")
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		const (
			sent  = 100
			bound = 64 << 20
		)
		var book journal.Journal
		l := open(lock.WithKeep(keep), lock.WithLogger(book.Logger()))
		answer := make([]byte, 1<<20)
		before := heap.InUse()
		s.Every(fault.LoseRequest, fault.Settle)
		for i := range sent {
			receipt, _, err := l.Once(t.Context(), strconv.Itoa(i), print1, answerWith(answer))
			require.NoError(t, err)
			require.Len(t, receipt, len(answer))
		}
		require.Equal(t, sent, l.Stats().Backlog)
		require.Equal(t, int64(bound), l.Stats().BacklogBytes)
		require.Less(t, heap.InUse()-before, int64(bound+8<<20))
		dropped := 0
		for _, line := range book.Lines() {
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

// A receipt that Close gives up is no longer counted.
func TestPendingReceiptsOfAClosedLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fault.New()
		l := lock.New(apart(s), lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget))
		s.Every(fault.HangRequest, fault.Settle)
		must.Run(t)(l.Once(t.Context(), key, print1, answerWith(large)))
		require.Equal(t, int64(len(large)), l.Stats().BacklogBytes)
		ctx := within(t, time.Second)
		require.Error(t, l.Close(ctx))
		synctest.Wait()
		time.Sleep(time.Minute)
		require.Zero(t, busy(l))
	})
}

// same-answer: a receipt that waited for the store was dropped because the store had no room for it, and its
// bytes counted on, so that other receipts were dropped for want of memory.
func TestDroppedReceiptTakesNoMemory(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		e := acquired(t, l, key)
		s.Every(fault.HangRequest, fault.Settle)
		require.ErrorIs(t, e.Settle(t.Context(), make([]byte, 1<<20), time.Hour), lock.ErrUnavailable)
		require.EqualValues(t, 1<<20, l.Stats().BacklogBytes)
		s.Every(full, fault.Settle)
		time.Sleep(20 * time.Second)
		require.Zero(t, l.Stats().BacklogBytes)
		require.Equal(t, 1, l.Stats().Backlog)
		s.Free(t, key)
		time.Sleep(3 * lease)
		require.Zero(t, l.Stats().Backlog, "there is no entry to settle")
		s.Every(nil)
	})
}

// A store that is only asked for receipts that it has still forgets receipts whose keep is over.
func TestReplaysAgeTheStore(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(memstore.New(), lock.WithKeep(time.Minute))
		kept := l.With(lock.WithKeep(time.Hour))
		answer := func(context.Context) ([]byte, error) { return []byte("receipt"), nil }
		for i := range n {
			must.Run(t)(l.Once(t.Context(), "short="+strconv.Itoa(i), nil, answer))
			must.Run(t)(kept.Once(t.Context(), "long="+strconv.Itoa(i), nil, answer))
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

// once: an entry is gone while its work runs, by a failover, a restart, an eviction or an operator. The answer is kept
// all the same, unless other work has the key, or the work was notified. The twin, a settle alone, leaves nothing.
func TestAnswerOutlivesItsEntry(t *testing.T) {
	type event = func(ctx context.Context, s *fault.Store, other *lock.Locker) error // of the work
	theirs := func(err error) event {
		return func(ctx context.Context, _ *fault.Store, other *lock.Locker) error {
			_, _, got := other.Once(ctx, key, print1, func(context.Context) ([]byte, error) { return []byte("theirs"), err })
			require.ErrorIs(t, got, err)
			return nil
		}
	}
	every := func(f fault.Func, op fault.Op) event {
		return func(_ context.Context, s *fault.Store, _ *lock.Locker) error { s.Every(f, op); return nil }
	}
	for name, tt := range map[string]struct {
		meanwhile event
		answer    string // for the request, and for its repeat; "": the lease is lost, and the key free
		unseen    bool
	}{
		"gone":                      {answer: "mine", meanwhile: every(nil, fault.Settle)},
		"after a takeover":          {answer: "mine", meanwhile: every(nil, fault.Settle)},
		"other work has failed":     {answer: "mine", meanwhile: theirs(io.EOF)},
		"other work has its answer": {answer: "theirs", meanwhile: theirs(nil), unseen: true},
		"other work goes on": {unseen: true, meanwhile: func(_ context.Context, _ *fault.Store, other *lock.Locker) error {
			startRun(other, func(context.Context) ([]byte, error) { time.Sleep(lease); return nil, io.EOF })
			return nil
		}},
		"the store is away":           {answer: "mine", meanwhile: every(fault.HangRequest, fault.Settle)},
		"the new claim has no answer": {answer: "mine", meanwhile: every(fault.LoseReply, fault.Claim), unseen: true},
		"the new claim is late":       {answer: "mine", meanwhile: every(fault.Late(lease), fault.Claim), unseen: true},
		"the new claim is refused":    {answer: "mine", meanwhile: every(fault.Refuse, fault.Claim)},
		"no new claim for good":       {meanwhile: every(denied, fault.Claim), unseen: true},
		"after a takeover, none for good after a late one": {unseen: true, meanwhile: func(_ context.Context, s *fault.Store, _ *lock.Locker) error {
			s.Next(fault.Claim, fault.Late(lease)).Every(denied, fault.Claim)
			return nil
		}},
		"notified":           {unseen: true, meanwhile: func(ctx context.Context, _ *fault.Store, _ *lock.Locker) error { <-ctx.Done(); return nil }},
		"notified by Commit": {unseen: true, meanwhile: func(ctx context.Context, _ *fault.Store, _ *lock.Locker) error { return lock.Commit(ctx) }},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var book journal.Journal
			l, other := open(lock.WithKeep(keep), lock.WithRerunAbandoned(), lock.WithLogger(book.Logger())), open(lock.WithKeep(keep))
			if strings.HasPrefix(name, "after a takeover") {
				abandoned(t, s)
			}
			receipt, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				s.Free(t, record)
				return []byte("mine"), tt.meanwhile(ctx, s, other)
			})
			time.Sleep(lease)
			s.Every(nil)
			time.Sleep(2 * lease)
			require.Equal(t, !tt.unseen, strings.Contains(strings.Join(book.Lines(), ""), "had lost the entry"))
			if tt.answer == "" {
				require.ErrorIs(t, err, lock.ErrLost)
				requireFree(t, s, record)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.answer, string(receipt))
			require.Equal(t, tt.answer, must.Replay(t)(other.Once(t.Context(), key, print1, nil)))
		})
	}
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		e := acquired(t, l, key)
		s.Free(t, key)
		require.ErrorIs(t, e.Settle(t.Context(), nil, keep), lock.ErrLost)
		requireFree(t, s, key)
	})
}

// A receipt whose settle was applied without an answer, and whose keep is over, is not made again.
func TestExpiredReceiptIsNotMadeAgain(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		s.Next(fault.Settle, fault.HangReply).Every(fault.HangRequest, fault.Settle)
		must.Run(t)(l.Once(t.Context(), key, print1, answerWith([]byte("mine"))))
		time.Sleep(lease + time.Second)
		s.Every(nil)
		time.Sleep(lease / 2)
		requireFree(t, s, record)
	}, lock.WithKeep(lease))
}

func TestOnceWhileTheFirstRuns(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		here, there := open(), open()
		must.Run(t)(here.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			for _, l := range []*lock.Locker{here, there} {
				_, _, err := l.Once(ctx, key, print1, nil)
				require.ErrorIs(t, err, lock.ErrHeld)
				_, _, err = l.Once(ctx, key, print2, nil)
				require.ErrorIs(t, err, lock.ErrMismatch, "422 comes before 409")
				_, _, err = l.Once(ctx, key, nil, nil)
				require.ErrorIs(t, err, lock.ErrHeld)
			}
			require.Equal(t, 1, lock.Attempt(ctx))
			_, ok := lock.FromContext(ctx)
			require.False(t, ok, "the lease of a receipt protects no resource")
			return nil, nil
		}))
		require.Zero(t, lock.Attempt(t.Context()))
		require.Error(t, lock.Commit(t.Context()))
	})
}

// Goroutines of a group end each other with their errors. The refusal of another key, because of its receipt or
// of a run that failed, does not concern this key: Once must not mistake it for its own.
func TestErrorThatEndsTheContextIsNoReplay(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{
		"a receipt": &lock.RefusedError{Reason: lock.ErrSettled, Entry: lock.Entry{State: lock.Settled, Receipt: []byte("shipped")}},
		"a failure": &lock.FailedRunError{Err: errMine},
	} {
		ctx, end := context.WithCancelCause(t.Context())
		end(cause)
		receipt, replayed, err := fault.Locker(t, memstore.New()).Once(ctx, "order=8", nil, mustNotRun)
		require.ErrorContains(t, err, "not acquired", name)
		require.ErrorIs(t, err, cause, name)
		require.False(t, replayed, name)
		require.Empty(t, receipt, name)
	}
}
