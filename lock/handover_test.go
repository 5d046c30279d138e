package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
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
	return handedOver(t, acquired(t, l, key), patience)
}

func handedOver(t *testing.T, e *lock.Lease, patience time.Duration) (ticket string) {
	t.Helper()
	ticket = must.Get(e.HandOver(t.Context(), patience))(t)
	require.NotEmpty(t, ticket)
	return ticket
}

func resumed(t *testing.T, l *lock.Locker, ticket string) *lock.Lease {
	t.Helper()
	e := must.Get(l.Resume(t.Context(), ticket))(t)
	return e
}

func resumeError(t *testing.T, l *lock.Locker, ticket string) error {
	t.Helper()
	_, err := l.Resume(t.Context(), ticket)
	return err
}

func requireHeld(t *testing.T, l *lock.Locker) {
	t.Helper()
	require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrHeld)
}

// A key goes from one process to another without being free in between.
func TestHandOver(t *testing.T) {
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
		ticket := handedOver(t, e, patience)
		require.LessOrEqual(t, len(ticket), 512)
		require.ErrorIs(t, context.Cause(e.Context()), lock.ErrHandedOver)
		require.NotErrorIs(t, context.Cause(e.Context()), lock.ErrLost)
		require.Zero(t, web.Stats().Active)

		require.NoError(t, e.Release(t.Context()))
		require.NoError(t, e.Settle(t.Context(), nil, time.Hour))
		require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
		_, err := e.HandOver(t.Context(), patience)
		require.ErrorIs(t, err, lock.ErrLost)
		require.Zero(t, s.Count(fault.Release)+s.Count(fault.Settle)+s.Count(fault.Renew), "the first process is done with the key")

		time.Sleep(patience - time.Second)
		requireHeld(t, web)
		requireHeld(t, other)
		resumed := resumed(t, worker, ticket)
		require.Equal(t, key, resumed.Key())
		time.Sleep(10 * lease) // renewed
		require.NoError(t, resumed.Context().Err())
		requireHeld(t, web)
		requireHeld(t, worker)
		require.NoError(t, resumed.Release(t.Context()))
		require.NoError(t, other.Do(t.Context(), key, nothing))
		require.Equal(t, []lock.EventKind{
			lock.EventClaimed, lock.EventHandedOver, lock.EventRefused, lock.EventResumed, lock.EventRefused, lock.EventRefused, lock.EventReleased,
		}, kinds)
	})
}

// The key is free after patience, whether patience is shorter than the lease or longer.
func TestTicketThatNoProcessResumes(t *testing.T) {
	for _, patience := range []time.Duration{lease / 10, 10 * lease} {
		bubbleCase(t, patience.String(), func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open()
			ticket := handOver(t, l, patience)
			time.Sleep(patience - time.Millisecond)
			requireHeld(t, l)
			time.Sleep(2 * time.Millisecond)
			requireFree(t, s, key)
			require.ErrorIs(t, resumeError(t, open(), ticket), lock.ErrLost)
			requireGrant(t, l)
			require.ErrorIs(t, resumeError(t, l, ticket), lock.ErrLost)
			requireFree(t, s, key)
		})
	}
}

// A hand-over without any answer returns no ticket, so no process resumes it, whether or not its
// command was applied. The key is free soon, and for this process at once.
func TestHandOverWithoutAnswer(t *testing.T) {
	for name, f := range map[string]fault.Func{
		"applied": fault.HangReply, "not applied": fault.HangRequest, "late": fault.Late(4 * time.Second), "refused": fault.Refuse,
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var seen events
			l, other := open(lock.WithWait(10*time.Millisecond), lock.WithObserver(seen.observe)), open()
			e := acquired(t, l, key)
			s.Every(f, fault.Claim)
			began := time.Now()
			_, err := e.HandOver(t.Context(), time.Hour)
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.Equal(t, name == "refused", !errors.Is(err, lock.ErrUnknown), "%v", err)
			require.LessOrEqual(t, time.Since(began), budget)
			require.ErrorIs(t, context.Cause(e.Context()), lock.ErrHandedOver)
			require.NoError(t, e.Release(t.Context()))

			s.Every(nil)
			requireGrant(t, l) // not refused by its own call
			time.Sleep(s.Lag + 5*time.Second)
			requireFree(t, s, key)
			requireGrant(t, other)
			require.Zero(t, l.Stats().Active)
			require.Zero(t, seen.count(lock.EventLost), "it is its own command that has taken the key")
		})
	}
}

// While a send of the holder's own claim may still land, the ticket's claim is sent once: with two
// sends, a ticket that was used could become good again.
func TestTicketIsSentOnceWhileTheHoldersClaimIsInDoubt(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		for _, inDoubt := range []bool{false, true} {
			if inDoubt {
				s.Next(fault.Claim, fault.LoseReply)
			}
			e := acquired(t, open(), key)
			s.Next(fault.Claim, fault.LoseReply)
			before := s.Count(fault.Claim)
			_, err := e.HandOver(t.Context(), time.Second)
			require.Equal(t, inDoubt, err != nil, "%v", err)
			require.Equal(t, map[bool]int{false: 2, true: 1}[inDoubt], s.Count(fault.Claim)-before)
			time.Sleep(time.Minute)
			requireFree(t, s, key)
		}
	})
}

// The time of the ticket is over before its claim is answered. By then the holder is not valid any more. It had
// the key until then, so an operator is not notified of a loss.
func TestTicketThatIsOverBeforeItIsWritten(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l, other := open(lock.WithObserver(seen.observe)), open(lock.WithWait(time.Second))
		e := acquired(t, l, key)
		s.Next(fault.Claim, fault.HangReply)
		handedOver := make(chan error, 1)
		go func() {
			_, err := e.HandOver(t.Context(), 10*time.Millisecond)
			handedOver <- err
		}()
		synctest.Wait()
		require.ErrorIs(t, other.Do(t.Context(), key, func(context.Context) error { return e.Context().Err() }), context.Canceled)
		err := <-handedOver
		require.ErrorIs(t, err, lock.ErrUnknown)
		require.NotErrorIs(t, err, lock.ErrLost)
		require.Zero(t, seen.count(lock.EventLost))
		require.Equal(t, 1, seen.count(lock.EventUnknown))
		requireGrant(t, l)
		require.Zero(t, l.Stats().Active)
	})
}

// A resume without any answer may have used the ticket up. The key is then resumed or free, never both.
func TestResumeWithoutAnswer(t *testing.T) {
	for name, f := range map[string]fault.Func{"applied": fault.HangReply, "not applied": fault.HangRequest, "refused": fault.Refuse} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			worker, other := open(), open()
			ticket := handOver(t, open(), patience)
			s.Every(f, fault.Claim)
			require.ErrorIs(t, resumeError(t, worker, ticket), lock.ErrUnavailable)
			s.Every(nil)
			require.Zero(t, worker.Stats().Active)
			time.Sleep(time.Second)
			again, err := other.Resume(t.Context(), ticket)
			if name == "applied" { // the ticket is used up
				requireTicketGone(t, err)
			} else {
				require.NoError(t, err)
				time.Sleep(s.Lag + 5*time.Second)
				require.NoError(t, again.Extend(t.Context()), "the removal of what may be left takes nothing away")
				require.NoError(t, again.Release(t.Context()))
			}
			requireFree(t, s, key)
			requireGrant(t, other)
		})
	}
}

// A process is paused during its resume for longer than the lease: the ticket is used up.
func TestResumeOfAPausedProcess(t *testing.T) {
	t.Parallel()
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		ticket := handOver(t, open(), time.Hour)
		l := open()
		s.Next(fault.Claim, func(_ context.Context, apply func() error) error { err := apply(); time.Sleep(lease); return err })
		require.ErrorIs(t, resumeError(t, l, ticket), lock.ErrUnknown)
		requireTicketGone(t, resumeError(t, l, ticket))
		require.Zero(t, l.Stats().Active)
	})
}

// A caller that may run without the store waits for a key that its own process resumes. The store
// fails, and the caller is refused: it would run at the same time as the worker, in one process.
func TestFailOpenDoesNotRunBesideAResumedLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithFailOpen(), lock.WithWait(time.Minute))
		ticket := handOver(t, open(), time.Hour)
		var ran sideBySide
		waiter := make(chan error, 1)
		go func() { waiter <- l.Do(t.Context(), key, ran.work) }()
		time.Sleep(time.Second)
		worker := resumed(t, l, ticket)
		s.Every(fault.HangRequest, fault.Claim)
		require.ErrorIs(t, <-waiter, lock.ErrHeld)
		require.NoError(t, worker.Context().Err())
		requireHeld(t, l.With(lock.WithWait(time.Millisecond)))
		require.NoError(t, worker.Release(t.Context()))
		require.Zero(t, ran.runs)
		require.NoError(t, l.Do(t.Context(), key, ran.work), "without the worker it runs")
		s.Every(nil)
	})
}

// An altered ticket is a separate error, and changes nothing.
func TestHostileTickets(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		good := handOver(t, l, patience)
		held := acquired(t, l, "user=43")
		calls := s.Count(fault.Claim)
		for _, text := range []string{
			"", good[:len(good)-1], "U" + good[1:], strings.Repeat("A", 1<<20), "\x00\xff", forge(tickettext.Answer, key), forge(tickettext.Lock, "once:1"),
		} {
			_, err := l.Resume(t.Context(), text)
			require.Error(t, err)
			require.NotErrorIs(t, err, lock.ErrLost)
			require.NotErrorIs(t, err, lock.ErrUnavailable)
			require.Less(t, len(err.Error()), 200)
		}
		require.Equal(t, calls, s.Count(fault.Claim), "the tickets that cannot be read were not asked for")
		for _, taken := range []string{key, "user=43"} { // a sum is no secret, and a token is
			_, err := l.Resume(t.Context(), forge(tickettext.Lock, taken))
			require.ErrorIs(t, err, lock.ErrLost, taken)
		}
		_, err := l.Resume(t.Context(), forge(tickettext.Lock, "user=44"))
		requireTicketGone(t, err)
		require.NoError(t, held.Extend(t.Context()))
		require.NoError(t, held.Release(t.Context()))
		e := resumed(t, l, good)
		require.NoError(t, e.Release(t.Context()))
		require.Zero(t, l.Stats().Active)
	})
}

// These hand-overs do nothing, and the lease goes on.
func TestHandOverThatCannotBe(t *testing.T) {
	t.Parallel()
	var none *lock.Lease
	_, err := none.HandOver(t.Context(), patience)
	require.ErrorIs(t, err, lock.ErrLost)
	require.PanicsWithValue(t, "lock: HandOver: patience(0s): the duration must be positive", func() { _, _ = none.HandOver(t.Context(), 0) })

	l := fault.Locker(t, memstore.New())
	long := strings.Repeat("k", 301)
	require.NoError(t, l.Do(t.Context(), long, func(ctx context.Context) error {
		e, _ := lock.FromContext(ctx)
		_, err := e.HandOver(ctx, patience)
		require.ErrorContains(t, err, "hash what is long")
		require.NoError(t, ctx.Err())
		return e.Extend(ctx)
	}))
	e := acquired(t, l, long[1:])
	_ = handedOver(t, e, patience)
}

// The store does not know ReplacesHeld: its answer shows the holder. The key is released.
func TestHandOverOverAStoreThatKeepsTheHolder(t *testing.T) {
	t.Parallel()
	l := fault.Locker(t, unaware{memstore.New()})
	e := acquired(t, l, key)
	_, err := e.HandOver(t.Context(), patience)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Error(t, e.Context().Err())
	require.NoError(t, l.With(lock.WithWait(time.Second)).Do(t.Context(), key, nothing))
}

// The holder has lost its key before.
func TestHandOverOfALostLease(t *testing.T) {
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

// The process of the worker also has callers that wait for the key: the resume does not wait for
// them, and the first of them gets the key when the worker is done.
func TestResumePassesByThoseWhoWait(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		ticket := handOver(t, l, patience)
		var all sync.WaitGroup
		var working sideBySide
		for range 3 {
			all.Go(func() { assert.NoError(t, l.Do(t.Context(), key, working.work)) })
		}
		time.Sleep(2 * time.Second)
		began := time.Now()
		e := resumed(t, l, ticket)
		require.Less(t, time.Since(began), budget)
		time.Sleep(5 * lease) // renewed, while callers wait
		require.NoError(t, e.Context().Err())
		require.Zero(t, working.runs)
		require.Len(t, l.Snapshot(9, nil).Holds, 2, "the worker, and the caller that claims")
		require.NoError(t, e.Release(t.Context()))
		released := time.Now()
		all.Wait()
		require.Equal(t, []int{3, 1}, []int{working.runs, working.most})
		require.Less(t, time.Since(released), 4*time.Second, "the first polls for it")
		requireFree(t, s, key)
	}, lock.WithWait(time.Minute))
}

// The caller that claims the key of the resumed lease gives up. The lease is still renewed, and refuses
// duplicates, until its own release: also one without an answer.
func TestResumedLeaseBesideARefusedCaller(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		ticket := handOver(t, l, patience)
		waiters := make(chan []error, 1)
		go func() { // one claims, and the others wait for its answer
			waiters <- meet(3, func(int) error { return l.With(lock.WithWait(2*time.Second)).Do(t.Context(), key, nil) })
		}()
		time.Sleep(time.Second)
		e := must.Get(l.Resume(t.Context(), ticket))(t)
		for _, err := range <-waiters {
			require.ErrorIs(t, err, lock.ErrHeld)
		}
		requireHeld(t, l)
		time.Sleep(5 * lease)
		require.NoError(t, e.Context().Err())
		requireHeld(t, l)

		s.Every(fault.HangReply, fault.Release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		s.Every(nil)
		requireGrant(t, l)
		requireFree(t, s, key)
	})
}

// A lease that was handed over is none of Close's, and a resumed one is. After Close, a ticket is
// left to other processes.
func TestCloseAndTickets(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		web, worker := open(), open()
		ticket := handOver(t, web, patience)
		require.NoError(t, web.Close(t.Context()))
		require.ErrorIs(t, resumeError(t, web, ticket), lock.ErrClosed)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := worker.Resume(ctx, ticket)
		require.ErrorIs(t, err, context.Canceled)

		e := resumed(t, worker, ticket)
		require.Error(t, worker.Close(ctx))
		require.ErrorIs(t, context.Cause(e.Context()), lock.ErrClosed)
		require.NoError(t, e.Release(t.Context()))
		requireFree(t, s, key)
	})
}

// Another caller has the key, the time of the ticket is over, or the key is free before then. In the last case the
// work may not have been begun, so the error does not match ErrLost, for which workers end a job.
func TestErrorsOfATicketThatIsNotResumed(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		elsewhere := fault.Locker(t, fault.New())
		l := open()
		ticket := handOver(t, l, patience)
		requireTicketGone(t, resumeError(t, elsewhere, ticket))
		e := resumed(t, l, ticket)
		_, err := open().Resume(t.Context(), ticket)
		require.ErrorIs(t, err, lock.ErrLost)
		require.ErrorContains(t, err, "resumed before")
		require.NoError(t, e.Release(t.Context()))
		requireTicketGone(t, resumeError(t, open(), ticket))
		time.Sleep(patience)
		for _, l := range []*lock.Locker{l, elsewhere} {
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

func TestResumedLeaseEndsAfterTheMaximumHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open() // for a minute
		e := acquired(t, l, key)
		time.Sleep(30 * time.Second)
		ticket := handedOver(t, e, patience)
		e = resumed(t, l, ticket)
		time.Sleep(59 * time.Second)
		require.NoError(t, context.Cause(e.Context()))
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, context.Cause(e.Context()), lock.ErrLost)
		requireFree(t, s, key)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrLost)
	})
}

// The claim of a ticket has no answer, and its entry cannot be removed. This process is not refused by its own orphan
// until patience is over, and not only for a lease.
func TestOrphanOfATicketIsKnownForItsPatience(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
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
		require.NoError(t, l.Do(t.Context(), key, nothing))
	})
}
