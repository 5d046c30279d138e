package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

// The founding incident: no reply at all, and a claim that was applied.
func TestIncidentClaimNeverAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		s.Every(fault.HangReply, fault.Claim).Every(fault.HangRequest, fault.Release)
		began := time.Now()
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, budget, time.Since(began))
		require.Equal(t, lock.Held, s.State(t, key).State, "the claim was applied")

		s.Every(nil, fault.Claim, fault.Release)
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err, "the process must not be locked out by itself")
		require.NoError(t, e.Release(t.Context()))
		granted(t, other)
		time.Sleep(time.Minute)
	})
}

// Two claims of one process must not meet at the server. Otherwise the claim that is refused
// would take the granted one for an orphan, and remove it.
func TestDoubleClickInsideOneRoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Every(fault.Slow(50*time.Millisecond), fault.Claim)
		first := make(chan *lock.Lease, 1)
		go func() {
			e, err := l.Acquire(context.Background(), key)
			if err != nil {
				t.Error(err)
			}
			first <- e
		}()
		synctest.Wait() // the claim is in flight
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, 1, s.Count(fault.Claim), "refused without a round trip")
		e := <-first
		require.NoError(t, e.Context().Err())
		require.Equal(t, lock.Held, s.State(t, key).State)
		require.NoError(t, e.Release(t.Context()))
	})
}

// The second send was certainly not applied; that says nothing of
// the first.
func TestOutcomeIsFoldedOverAllSends(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Every(fault.Refuse, fault.Claim)
		s.Next(fault.Claim, fault.LoseReply)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		synctest.Wait()
		require.Equal(t, lock.Free, s.State(t, key).State)
	})
}

func TestNotAppliedIsNotUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		s.Every(fault.Refuse, fault.Claim)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrUnknown)
		require.Equal(t, 1, seen.count(lock.EventUnavailable))
		require.Zero(t, s.Count(fault.Release), "nothing to clean up")
	})
}

// Validity counts from before the first send of the token.
func TestValidityCountsFromTheFirstSend(t *testing.T) {
	bubbleOver(t, apart, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Next(fault.Claim, fault.HangRequest, fault.Slow(budget/2))
		began := time.Now()
		e := acquired(t, l, key)
		require.Greater(t, time.Since(began), budget/2, "what the answer took is gone")
		s.Every(fault.HangRequest, fault.Renew)
		<-e.Context().Done()
		require.Less(t, time.Since(began), lease)
		_ = e.Release(t.Context())
	})
}

func TestAcquireWithAnEndedContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("left"))
		_, err := l.Acquire(ctx, key)
		require.ErrorContains(t, err, "left")
		require.Zero(t, s.Count(fault.Claim))
	})
}

// Acquire with a context that ends: the time and the result of its return.
func TestAcquireWhoseContextEnds(t *testing.T) {
	const third, hasty = budget / 3, budget / 10
	errLeft := errors.New("the client has left")
	for _, tt := range []struct {
		name    string
		held    bool // by another, and waited for
		fault   fault.Func
		took    time.Duration
		granted bool
	}{
		{name: "waiting for its turn", held: true, took: hasty},
		{name: "claim without an answer", fault: fault.HangRequest, took: third},
		{name: "claim without an answer that was applied", fault: fault.HangReply, took: third},
		{name: "claim that is answered", fault: fault.Slow(third / 2), took: third / 2, granted: true},
	} {
		bubbleOverCase(t, tt.name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithWait(time.Minute))
			if tt.held {
				other := acquired(t, l, key)
				defer func() { require.NoError(t, other.Release(context.WithoutCancel(t.Context()))) }()
			} else {
				s.Next(fault.Claim, tt.fault)
			}
			ctx, leave := context.WithCancelCause(t.Context())
			time.AfterFunc(hasty, func() { leave(errLeft) })
			began := time.Now()
			e, err := l.Acquire(ctx, key)
			require.Equal(t, tt.took, time.Since(began))
			if !tt.granted {
				require.ErrorIs(t, err, errLeft)
				return
			}
			require.NoError(t, err)
			require.ErrorIs(t, context.Cause(e.Context()), errLeft)
			require.NoError(t, e.Release(t.Context()))
		})
	}
}

func TestHeldElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		e := acquired(t, other, key)
		_, err := l.Acquire(t.Context(), key)
		var refused *lock.RefusedError
		require.ErrorAs(t, err, &refused)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NotEmpty(t, refused.Entry.Owner)
		require.NoError(t, e.Release(t.Context()))
		require.Equal(t, 1, s.Count(fault.Claim)-1)
	})
}

// A process that holds many keys knows each of them, while other keys come and go.
func TestManyKeysInOneProcess(t *testing.T) {
	const n = 5_000
	l := lock.New(memstore.New())
	held := make([]*lock.Lease, n)
	random := rand.New(rand.NewPCG(1, 2))
	count := 0
	for range 4 * n {
		i := random.IntN(n)
		e, err := l.Acquire(t.Context(), "user="+strconv.Itoa(i))
		if held[i] == nil {
			require.NoError(t, err)
			held[i] = e
			count++
			continue
		}
		require.ErrorIs(t, err, lock.ErrHeld)
		if random.IntN(2) == 0 {
			require.NoError(t, held[i].Release(t.Context()))
			held[i] = nil
			count--
		}
	}
	require.Len(t, l.Snapshot(n, nil).Holds, count)
	for _, e := range held {
		require.NoError(t, e.Release(t.Context()))
	}
	require.Empty(t, l.Snapshot(n, nil).Holds)
	require.NoError(t, l.Close(context.Background()))
}

// A claim that is answered as its lease is over is no grant: this process was paused.
func TestAnAnswerAfterTheLeaseIsNoGrant(t *testing.T) {
	for name, tt := range map[string]struct {
		pause   time.Duration
		granted bool
	}{
		"a moment before": {validity - time.Millisecond, true},
		"at its end":      {validity, false},
		"later":           {lease + time.Second, false},
	} {
		bubbleOverCase(t, name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var seen events
			l := open(lock.WithObserver(seen.observe))
			s.Next(fault.Claim, func(_ context.Context, apply func() error) error {
				err := apply()
				time.Sleep(tt.pause)
				return err
			})
			e, err := l.Acquire(t.Context(), key)
			if tt.granted {
				require.NoError(t, err)
				require.NoError(t, e.Release(t.Context()))
				return
			}
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.Zero(t, seen.count(lock.EventClaimed)+seen.count(lock.EventLost))
			synctest.Wait()
			require.Equal(t, lock.Free, s.State(t, key).State, "an orphan, which is removed")
		})
	}
}

// claims is a store that keeps the claims that it was called with.
type claims struct {
	lock.Store

	mu             sync.Mutex
	renewed, ended []lock.Claim
	last           lock.Claim // claimed or renewed
}

func (s *claims) Describe() lock.Description { return lock.Describe(s.Store) }

func (s *claims) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	s.keep(c, nil)
	return s.Store.Claim(ctx, key, c)
}

func (s *claims) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	s.keep(c, &s.renewed)
	return s.Store.Renew(ctx, key, c)
}

func (s *claims) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	s.keep(c, &s.ended)
	return s.Store.Settle(ctx, key, c, receipt, keep)
}

func (s *claims) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	s.keep(c, &s.ended)
	return s.Store.Release(ctx, key, c)
}

func (s *claims) keep(c lock.Claim, in *[]lock.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in != nil {
		*in = append(*in, c)
	}
	if in != &s.ended {
		s.last = c
	}
}

// knows runs work with a Locker over a store of each sort, and checks the claims with which the
// store was called.
func knows(t *testing.T, opts []lock.Option, work func(t *testing.T, l *lock.Locker), check func(t *testing.T, s *claims)) {
	t.Helper()
	for name, as := range map[string]func(*fault.Store) lock.Store{
		"apart": apart, "direct": direct, "in the process": func(*fault.Store) lock.Store { return memstore.New() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &claims{Store: as(fault.New())}
				l := lock.New(s, append([]lock.Option{lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget)}, opts...)...)
				work(t, l)
				require.NoError(t, l.Close(t.Context()))
				s.mu.Lock()
				defer s.mu.Unlock()
				check(t, s)
			})
		})
	}
}

// A store can compute its stored value from the claim of a release or settle.
func TestEndsGetTheClaim(t *testing.T) {
	same := func(t *testing.T, s *claims) {
		t.Helper()
		require.Len(t, s.ended, 1)
		s.last.Lease, s.ended[0].Lease = 0, 0
		require.Equal(t, s.last, s.ended[0])
	}
	t.Run("release", func(t *testing.T) {
		knows(t, nil, func(t *testing.T, l *lock.Locker) {
			t.Helper()
			require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		}, same)
	})
	t.Run("release after a renewal", func(t *testing.T) {
		knows(t, []lock.Option{lock.WithFencing()}, func(t *testing.T, l *lock.Locker) {
			t.Helper()
			require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { time.Sleep(2 * lease); return nil }))
		}, same)
	})
	t.Run("settle", func(t *testing.T) {
		knows(t, nil, func(t *testing.T, l *lock.Locker) {
			t.Helper()
			_, _, err := l.Once(t.Context(), key, []byte("print"), func(context.Context) ([]byte, error) { return nil, nil })
			require.NoError(t, err)
		}, func(t *testing.T, s *claims) {
			t.Helper()
			require.Equal(t, []byte("print"), s.last.Fingerprint)
			require.Positive(t, s.last.Linger)
			same(t, s)
		})
	})
}

// A renewal that says that none is longer is not followed by a longer one, nor does it
// follow one: it may set the end of a lease, and land late.
func TestLongestRenewals(t *testing.T) {
	for name, tt := range map[string]struct {
		opts []lock.Option
		want bool // a renewal says so
	}{
		"plain":      {want: true},
		"to the end": {opts: []lock.Option{lock.WithMaxHold(2*lease + time.Second)}, want: true},
		"run again":  {opts: []lock.Option{lock.WithRerunAbandoned()}},
	} {
		t.Run(name, func(t *testing.T) {
			knows(t, tt.opts, func(t *testing.T, l *lock.Locker) {
				t.Helper()
				_, _, err := l.Once(t.Context(), key, nil, func(ctx context.Context) ([]byte, error) {
					time.Sleep(lease)
					require.NoError(t, lock.Commit(ctx))
					time.Sleep(lease)
					return nil, nil
				})
				require.NoError(t, err)
			}, func(t *testing.T, s *claims) {
				t.Helper()
				longest, says := time.Duration(0), false
				for _, c := range s.renewed {
					longest, says = max(longest, c.Lease), says || c.Longest
				}
				require.Equal(t, tt.want, says)
				for _, c := range s.renewed {
					require.True(t, !c.Longest || c.Lease == longest, "%v of %v", c.Lease, longest)
				}
			})
		})
	}
}
