package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/tickettext"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

// patience is for how long the keys of these tests wait for a resume.
const patience = time.Minute

// handOver takes key with l, and hands it over.
func handOver(t *testing.T, l *lock.Locker, patience time.Duration) (ticket string) {
	t.Helper()
	ticket, err := acquired(t, l, key).HandOver(t.Context(), patience)
	require.NoError(t, err)
	require.NotEmpty(t, ticket)
	return ticket
}

func requireHeld(t *testing.T, l *lock.Locker) {
	t.Helper()
	_, err := l.Acquire(t.Context(), key)
	require.ErrorIs(t, err, lock.ErrHeld)
}

// A key goes from one process to another without being free in between, and the first process
// is done with it.
func TestHandOver(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var mu sync.Mutex
		var kinds []lock.EventKind
		see := lock.WithObserver(func(_ context.Context, e lock.Event) {
			assert.Equal(t, key, e.Key)
			mu.Lock()
			defer mu.Unlock()
			if e.Kind != lock.EventRenewed {
				kinds = append(kinds, e.Kind)
			}
		})
		web, worker, other := open(see), open(see), open()
		e := acquired(t, web, key)
		ticket, err := e.HandOver(t.Context(), patience)
		require.NoError(t, err)
		require.LessOrEqual(t, len(ticket), 512)
		require.ErrorIs(t, context.Cause(e.Context()), lock.ErrHandedOver)
		require.NotErrorIs(t, context.Cause(e.Context()), lock.ErrLost)
		require.Zero(t, web.Stats().Active)

		require.NoError(t, e.Release(t.Context()))
		require.NoError(t, e.Settle(t.Context(), nil, time.Hour))
		require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
		_, err = e.HandOver(t.Context(), patience)
		require.ErrorIs(t, err, lock.ErrLost)
		require.Zero(t, s.Count(fault.Release)+s.Count(fault.Settle)+s.Count(fault.Renew), "the first process is done with the key")

		time.Sleep(patience - time.Second)
		requireHeld(t, web)
		requireHeld(t, other)
		resumed, err := worker.Resume(t.Context(), ticket)
		require.NoError(t, err)
		require.Equal(t, key, resumed.Key())
		time.Sleep(10 * lease) // renewed
		require.NoError(t, resumed.Context().Err())
		requireHeld(t, web)
		requireHeld(t, worker)
		require.NoError(t, resumed.Release(t.Context()))
		require.NoError(t, other.Do(t.Context(), key, func(context.Context) error { return nil }))
		require.Equal(t, []lock.EventKind{
			lock.EventClaimed, lock.EventHandedOver, lock.EventRefused, lock.EventResumed, lock.EventRefused, lock.EventRefused, lock.EventReleased,
		}, kinds)
	})
}

// The key is free after patience, whether patience is shorter than the lease or longer.
func TestTicketThatNoProcessResumes(t *testing.T) {
	t.Parallel()
	for _, patience := range []time.Duration{time.Nanosecond, lease / 10, 10 * lease} {
		bubbleCase(t, patience.String(), func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open()
			ticket := handOver(t, l, patience)
			time.Sleep(patience - patience/100)
			if patience > time.Millisecond {
				requireHeld(t, l)
			}
			time.Sleep(patience/100 + time.Millisecond)
			requireFree(t, s, key)
			_, err := open().Resume(t.Context(), ticket)
			require.ErrorIs(t, err, lock.ErrLost)
			require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
			_, err = l.Resume(t.Context(), ticket)
			require.ErrorIs(t, err, lock.ErrLost)
			requireFree(t, s, key)
		})
	}
}

// Of all workers that are given a ticket, at the same time or later, one is granted.
func TestTicketIsResumedOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		ticket := handOver(t, open(), patience)
		lockers := []*lock.Locker{open(), open(), open()}
		var granted atomic.Pointer[lock.Lease]
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				e, err := lockers[i%3].Resume(t.Context(), ticket)
				if err != nil {
					require.ErrorIs(t, err, lock.ErrLost)
					return
				}
				require.True(t, granted.CompareAndSwap(nil, e), "resumed twice")
			})
		}
		all.Wait()
		e := granted.Load()
		require.NotNil(t, e)
		require.NoError(t, e.Extend(t.Context()), "the refused ones have taken nothing away")

		again, err := e.HandOver(t.Context(), patience)
		require.NoError(t, err)
		_, err = lockers[0].Resume(t.Context(), ticket)
		require.ErrorIs(t, err, lock.ErrLost, "the first ticket")
		e, err = lockers[0].Resume(t.Context(), again)
		require.NoError(t, err)
		require.NoError(t, e.Release(t.Context()))
		for _, used := range []string{ticket, again} {
			_, err = lockers[1].Resume(t.Context(), used)
			requireTicketGone(t, err)
		}
		requireFree(t, s, key)
	})
}

// A hand-over without any answer returns no ticket, so no process resumes it, whether or not its
// command was applied. The key is free soon, and for this process at once.
func TestHandOverWithoutAnswer(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault.Func{
		"applied, then silence": fault.HangReply, "not applied": fault.HangRequest, "lost": fault.LoseReply,
		"late": fault.Late(4 * time.Second), "stuck": fault.Stuck(2 * time.Second), "refused": fault.Refuse,
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l, other := open(lock.WithWait(10*time.Millisecond), lock.WithObserver(func(_ context.Context, e lock.Event) {
				assert.NotEqual(t, lock.EventLost, e.Kind, "it is its own command that has taken the key")
			})), open()
			e := acquired(t, l, key)
			s.Every(f, fault.Claim)
			began := time.Now()
			_, err := e.HandOver(t.Context(), time.Hour)
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.Equal(t, name == "refused", !errors.Is(err, lock.ErrUnknown), "%v", err)
			if name != "stuck" {
				require.LessOrEqual(t, time.Since(began), budget)
			}
			require.ErrorIs(t, context.Cause(e.Context()), lock.ErrHandedOver)
			require.NoError(t, e.Release(t.Context()))

			s.Every(nil)
			require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }), "by its own call")
			time.Sleep(s.Lag + 5*time.Second)
			requireFree(t, s, key)
			require.NoError(t, other.Do(t.Context(), key, func(context.Context) error { return nil }))
			require.Zero(t, l.Stats().Active)
		})
	}
}

// The store answers nothing from the hand-over on. The holder is not valid for longer than the
// ticket, which may be as short as the caller likes.
func TestHolderIsOverBeforeItsTicketIs(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open(lock.WithWait(time.Second))
		e := acquired(t, l, key)
		var overlap, granted atomic.Bool
		s.Next(fault.Claim, fault.HangReply)
		var all sync.WaitGroup
		all.Go(func() { _, _ = e.HandOver(t.Context(), 10*time.Millisecond) })
		synctest.Wait()
		all.Go(func() {
			require.NoError(t, other.Do(t.Context(), key, func(context.Context) error {
				granted.Store(true)
				overlap.Store(e.Context().Err() == nil)
				return nil
			}))
		})
		all.Wait()
		require.True(t, granted.Load())
		require.False(t, overlap.Load())
	})
}

// The time of the ticket is over before its claim is answered. The holder had the key until then,
// so an operator is not notified of a loss.
func TestTicketThatIsOverBeforeItIsWritten(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		e := acquired(t, l, key)
		s.Next(fault.Claim, fault.HangReply)
		_, err := e.HandOver(t.Context(), 10*time.Millisecond)
		require.ErrorIs(t, err, lock.ErrUnknown)
		require.NotErrorIs(t, err, lock.ErrLost)
		require.Zero(t, seen.count(lock.EventLost))
		require.Equal(t, 1, seen.count(lock.EventUnknown))
		requireFree(t, s, key)
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		require.Zero(t, l.Stats().Active)
	})
}

// A resume without any answer may have used the ticket up. Then the key is free soon: it is
// resumed or free, never both.
func TestResumeWithoutAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		meets fault.Func
		used  bool // then another resume is not granted
	}{
		"applied, then silence": {fault.HangReply, true},
		"lost":                  {fault.LoseReply, true},
		"not applied":           {fault.HangRequest, false},
		"refused":               {fault.Refuse, false},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l, worker, other := open(), open(), open()
			ticket := handOver(t, l, patience)
			s.Every(tt.meets, fault.Claim)
			_, err := worker.Resume(t.Context(), ticket)
			require.ErrorIs(t, err, lock.ErrUnavailable)
			s.Every(nil)
			require.Zero(t, worker.Stats().Active)
			time.Sleep(time.Second)
			again, err := other.Resume(t.Context(), ticket)
			if !tt.used {
				require.NoError(t, err)
				time.Sleep(s.Lag + 5*time.Second)
				require.NoError(t, again.Extend(t.Context()), "the removal of what may be left takes nothing away")
				require.NoError(t, again.Release(t.Context()))
			} else {
				requireTicketGone(t, err)
			}
			requireFree(t, s, key)
			require.NoError(t, other.Do(t.Context(), key, func(context.Context) error { return nil }))
		})
	}
}

// A process is paused during its resume for longer than the lease. The ticket is used up, and the
// error says so.
func TestResumeOfAPausedProcess(t *testing.T) {
	t.Parallel()
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		ticket := handOver(t, open(), time.Hour)
		l := open()
		s.Next(fault.Claim, func(_ context.Context, apply func() error) error { err := apply(); time.Sleep(lease); return err })
		_, err := l.Resume(t.Context(), ticket)
		require.ErrorIs(t, err, lock.ErrUnknown)
		_, err = l.Resume(t.Context(), ticket)
		requireTicketGone(t, err)
		require.Zero(t, l.Stats().Active)
	})
}

// A caller that may run without the store waits for a key that its own process resumes. The store
// fails, and the caller is refused: it would run at the same time as the worker, in one process.
func TestFailOpenDoesNotRunBesideAResumedLease(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithFailOpen(), lock.WithWait(time.Minute))
		ticket := handOver(t, open(), time.Hour)
		var all sync.WaitGroup
		all.Go(func() {
			require.ErrorIs(t, l.Do(t.Context(), key, func(context.Context) error {
				t.Error("runs beside the worker")
				return nil
			}), lock.ErrHeld)
		})
		time.Sleep(time.Second)
		worker, err := l.Resume(t.Context(), ticket)
		require.NoError(t, err)
		s.Every(fault.HangRequest, fault.Claim)
		all.Wait()
		require.NoError(t, worker.Context().Err())
		requireHeld(t, l.With(lock.WithWait(time.Millisecond)))
		require.NoError(t, worker.Release(t.Context()))
		ran := false
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { ran = true; return nil }))
		require.True(t, ran, "without the worker it runs")
		s.Every(nil)
		require.Zero(t, l.Stats().Active)
	})
}

// An altered ticket is a separate error, and changes nothing.
func TestHostileTickets(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		good := handOver(t, l, patience)
		answer := forge(tickettext.Answer, key)
		record := forge(tickettext.Lock, "once:1")
		for name, text := range map[string]string{
			"none": "", "cut": good[:len(good)-1], "longer": good + "A", "altered": "U" + good[1:], "a megabyte": strings.Repeat("A", 1<<20),
			"not printable": "\x00\xff", "of an answer": answer, "of a record": record,
		} {
			_, err := l.Resume(t.Context(), text)
			require.Error(t, err, name)
			require.NotErrorIs(t, err, lock.ErrLost, name)
			require.NotErrorIs(t, err, lock.ErrUnavailable, name)
			require.Less(t, len(err.Error()), 200, name)
		}
		calls := s.Count(fault.Claim)
		held := acquired(t, l, "user=43")
		for _, key := range []string{key, "user=43", "user=44"} { // a sum is no secret, and a token is
			forged := forge(tickettext.Lock, key)
			_, err := l.Resume(t.Context(), forged)
			if key == "user=44" {
				requireTicketGone(t, err)
			} else {
				require.ErrorIs(t, err, lock.ErrLost, key)
			}
		}
		require.Equal(t, calls+4, s.Count(fault.Claim), "the tickets that cannot be read were not asked for")
		require.NoError(t, held.Extend(t.Context()))
		require.NoError(t, held.Release(t.Context()))
		e, err := l.Resume(t.Context(), good)
		require.NoError(t, err)
		require.NoError(t, e.Release(t.Context()))
		require.Zero(t, l.Stats().Active)
	})
}

// Fences grow with the hand-over and with the resume.
func TestFencesGrowAcrossAHandOver(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithFencing())
		last := int64(0)
		e := acquired(t, l, key)
		for range 3 {
			fence, ok := e.Fence()
			require.True(t, ok)
			require.Greater(t, fence, last)
			last = fence
			ticket, err := e.HandOver(t.Context(), patience)
			require.NoError(t, err)
			e, err = l.Resume(t.Context(), ticket)
			require.NoError(t, err)
		}
		require.NoError(t, e.Release(t.Context()))
	})
}

// These hand-overs do nothing, and the lease goes on.
func TestHandOverThatCannotBe(t *testing.T) {
	t.Parallel()
	var none *lock.Lease
	_, err := none.HandOver(t.Context(), patience)
	require.ErrorIs(t, err, lock.ErrLost)
	require.PanicsWithValue(t, "lock: HandOver: patience(0s): the duration must be positive", func() { _, _ = none.HandOver(t.Context(), 0) })

	l := lockerOver(t, memstore.New())
	long := strings.Repeat("k", 301)
	require.NoError(t, l.Do(t.Context(), long, func(ctx context.Context) error {
		e, _ := lock.FromContext(ctx)
		_, err := e.HandOver(ctx, patience)
		require.ErrorContains(t, err, "hash what is long")
		require.NoError(t, ctx.Err())
		return e.Extend(ctx)
	}))
	e := acquired(t, l, long[1:])
	_, err = e.HandOver(t.Context(), patience)
	require.NoError(t, err)
}

func TestHandOverOfUnprotectedWork(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		s.Every(fault.HangRequest, fault.Claim)
		e := acquired(t, open(lock.WithFailOpen()), key)
		_, err := e.HandOver(t.Context(), patience)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Release(t.Context()))
	})
}

// The store does not know ReplacesHeld: its answer shows the holder. The key is released.
func TestHandOverOverAStoreThatKeepsTheHolder(t *testing.T) {
	t.Parallel()
	l := lockerOver(t, keeper{memstore.New()})
	e := acquired(t, l, key)
	_, err := e.HandOver(t.Context(), patience)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Error(t, e.Context().Err())
	require.NoError(t, l.With(lock.WithWait(time.Second)).Do(t.Context(), key, func(context.Context) error { return nil }))
}

type keeper struct{ lock.Store }

func (s keeper) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	c.ReplacesHeld = false
	return s.Store.Claim(ctx, key, c)
}

// The holder has lost its key before.
func TestHandOverOfALostLease(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		e := acquired(t, l, key)
		s.Free(t, key)
		held := acquired(t, other, key)
		_, err := e.HandOver(t.Context(), patience)
		require.ErrorIs(t, err, lock.ErrLost)
		require.NoError(t, held.Extend(t.Context()))

		s.Every(deadEnd, fault.Renew)
		time.Sleep(lease)
		_, err = held.HandOver(t.Context(), patience)
		require.ErrorIs(t, err, lock.ErrLost)
		s.Every(nil)
		time.Sleep(lease)
		requireFree(t, s, key)
		require.Zero(t, l.Stats().Active+other.Stats().Active)
	})
}

// In Do, the lease is the function's, and its end there is not an error.
func TestHandOverInDo(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		var ticket string
		require.NoError(t, l.Do(t.Context(), key, func(ctx context.Context) (err error) {
			e, _ := lock.FromContext(ctx)
			ticket, err = e.HandOver(ctx, patience)
			require.ErrorIs(t, context.Cause(ctx), lock.ErrHandedOver)
			return err
		}))
		require.Equal(t, lock.Held, s.State(t, key).State)
		e, err := l.Resume(t.Context(), ticket)
		require.NoError(t, err)
		require.NoError(t, e.Release(t.Context()))
	})
}

// The process of the worker also has callers that wait for the key: the resume does not wait for
// them, and the first of them gets the key when the worker is done.
func TestResumePassesByThoseWhoWait(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithWait(time.Minute))
		ticket := handOver(t, l, patience)
		var done atomic.Int32
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				require.NoError(t, l.Do(t.Context(), key, func(context.Context) error {
					done.Add(1)
					time.Sleep(time.Second)
					return nil
				}))
			})
		}
		time.Sleep(2 * time.Second)
		began := time.Now()
		e, err := l.Resume(t.Context(), ticket)
		require.NoError(t, err)
		require.Less(t, time.Since(began), budget)
		time.Sleep(5 * lease) // renewed, while callers wait
		require.NoError(t, e.Context().Err())
		require.Zero(t, done.Load())
		snapshot := l.Snapshot(9, nil)
		require.Len(t, snapshot.Holds, 2, "the worker, and the caller that claims")
		require.NoError(t, e.Release(t.Context()))
		released := time.Now()
		all.Wait()
		require.EqualValues(t, 3, done.Load())
		require.Less(t, time.Since(released), 4*time.Second, "the first polls for it")
		requireFree(t, s, key)
		require.Zero(t, l.Stats().Active)
	})
}

// The caller that claims the key of the resumed lease gives up. The lease is still renewed, and refuses
// duplicates.
func TestResumedLeaseBesideARefusedCaller(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		ticket := handOver(t, l, patience)
		var all sync.WaitGroup
		for range 3 { // one claims, and the others wait for its answer
			all.Go(func() {
				_, err := l.With(lock.WithWait(2*time.Second)).Acquire(t.Context(), key)
				require.ErrorIs(t, err, lock.ErrHeld)
			})
		}
		time.Sleep(time.Second)
		e, err := l.Resume(t.Context(), ticket)
		require.NoError(t, err)
		all.Wait()
		requireHeld(t, l)
		time.Sleep(5 * lease)
		require.NoError(t, e.Context().Err())
		requireHeld(t, l)

		s.Every(fault.HangReply, fault.Release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		s.Every(nil)
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }), "not refused by its own release")
		requireFree(t, s, key)
	})
}

// A lease that was handed over is none of Close's, and a resumed one is. After Close, a ticket is
// left to other processes.
func TestCloseAndTickets(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		web, worker := open(), open()
		ticket := handOver(t, web, patience)
		require.NoError(t, web.Close(t.Context()))
		_, err := web.Resume(t.Context(), ticket)
		require.ErrorIs(t, err, lock.ErrClosed)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = worker.Resume(ctx, ticket)
		require.ErrorIs(t, err, context.Canceled)

		e, err := worker.Resume(t.Context(), ticket)
		require.NoError(t, err)
		require.Error(t, worker.Close(ctx))
		require.ErrorIs(t, context.Cause(e.Context()), lock.ErrClosed)
		require.NoError(t, e.Release(t.Context()))
		requireFree(t, s, key)
	})
}

// An operator frees a key that waits for a resume, as any other.
func TestOperatorFreesAKeyThatWaits(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		ticket := handOver(t, l, patience)
		s.Free(t, key)
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		_, err := l.Resume(t.Context(), ticket)
		requireTicketGone(t, err)
	})
}

// The errors of a ticket that is not resumed: another caller has the key, the time of the ticket is
// over, or the key is free before then. In the last case the work may not have been begun, for example
// because the worker has another prefix, so the error does not match ErrLost, for which workers
// end a job.
func TestErrorsOfATicketThatIsNotResumed(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		elsewhere := lock.New(fault.New(), lock.WithLogger(quiet))
		defer func() { require.NoError(t, elsewhere.Close(t.Context())) }()
		l := open()
		ticket := handOver(t, l, patience)
		_, err := elsewhere.Resume(t.Context(), ticket)
		requireTicketGone(t, err)
		e, err := l.Resume(t.Context(), ticket)
		require.NoError(t, err, "the worker of another store has not used it up")
		_, err = open().Resume(t.Context(), ticket)
		require.ErrorIs(t, err, lock.ErrLost)
		require.ErrorContains(t, err, "resumed before")
		require.NoError(t, e.Release(t.Context()))
		_, err = open().Resume(t.Context(), ticket)
		requireTicketGone(t, err)
		time.Sleep(patience)
		for _, l := range []*lock.Locker{l, open(), elsewhere} {
			_, err = l.Resume(t.Context(), ticket)
			require.ErrorIs(t, err, lock.ErrLost)
			require.ErrorContains(t, err, "time of the ticket is over")
		}
		requireFree(t, s, key)
	})
}

// requireTicketGone checks the error of a ticket whose key is free before its time is over.
func requireTicketGone(t *testing.T, err error) {
	t.Helper()
	require.ErrorContains(t, err, "the key of the ticket is free, and the time of the ticket is not over")
	require.NotErrorIs(t, err, lock.ErrLost)
	require.NotErrorIs(t, err, lock.ErrUnavailable)
}

// forge returns a ticket whose token no entry has.
func forge(kind tickettext.Kind, name string) string {
	t := tickettext.Ticket{Name: name, Token: "token", Until: time.Now().Add(time.Hour)}
	text, _ := t.Write(kind)
	return text
}

// A resumed lease ends after WithMaxHold, counted from Resume.
func TestResumedLeaseEndsAfterTheMaximumHold(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		const most = time.Minute
		e := acquired(t, open(lock.WithMaxHold(most)), key)
		time.Sleep(most / 2)
		ticket, err := e.HandOver(t.Context(), patience)
		require.NoError(t, err)
		e, err = open(lock.WithMaxHold(most)).Resume(t.Context(), ticket)
		require.NoError(t, err)
		time.Sleep(most - time.Second)
		require.NoError(t, context.Cause(e.Context()))
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, context.Cause(e.Context()), lock.ErrLost)
		requireFree(t, s, key)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrLost)
	})
}

// Close while a resume is in flight: its caller gets no lease that Close does not know.
func TestResumeDuringClose(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		ticket := handOver(t, open(), patience)
		l := open()
		s.Next(fault.Claim, fault.Slow(budget/6))
		got := make(chan error, 1)
		go func() { _, err := l.Resume(context.Background(), ticket); got <- err }()
		synctest.Wait()
		require.NoError(t, l.Close(t.Context()))
		require.ErrorIs(t, <-got, lock.ErrClosed)
		requireFree(t, s, key)
	})
}

// The claim of a ticket has no answer, and its entry cannot be removed. This process is not refused
// by its own orphan for as long as the entry can be there: until patience is over, and not only for a
// lease.
func TestOrphanOfATicketIsKnownForItsPatience(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		e := acquired(t, l, key)
		s.Every(fault.HangReply, fault.Claim).Every(fault.Refuse, fault.Release)
		_, err := e.HandOver(t.Context(), time.Hour)
		require.ErrorIs(t, err, lock.ErrUnknown)
		for range 5 {
			time.Sleep(10 * time.Minute)
			_, err = l.Acquire(t.Context(), "user=43") // another orphan: the oldest are forgotten for it
			require.ErrorIs(t, err, lock.ErrUnknown)
		}
		require.Equal(t, lock.Held, s.State(t, key).State)
		s.Every(nil)
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
	})
}
