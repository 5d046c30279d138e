package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// mortal is the store as one process sees it. The calls of a killed process never arrive.
type mortal struct {
	lock.Store
	killed atomic.Bool
}

func (m *mortal) Describe() lock.Description { return lock.Description{MaxLag: time.Second} }

func (m *mortal) alive() error {
	if m.killed.Load() {
		return errors.Join(lock.ErrNotApplied, errors.New("killed"))
	}
	return nil
}

func (m *mortal) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if err := m.alive(); err != nil {
		return lock.Entry{}, err
	}
	return m.Store.Claim(ctx, key, c)
}

func (m *mortal) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if err := m.alive(); err != nil {
		return false, err
	}
	return m.Store.Renew(ctx, key, c)
}

func (m *mortal) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	if err := m.alive(); err != nil {
		return false, err
	}
	return m.Store.Settle(ctx, key, c, receipt, keep)
}

func (m *mortal) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if err := m.alive(); err != nil {
		return false, err
	}
	return m.Store.Release(ctx, key, c)
}

// A process is killed in a guarded run that holds a lock: the successor of the run gets the lock as
// soon as it gets the run. It was refused by the lock of the killed process for up to 1.7 s before,
// since the lock is renewed first after a third of its short lease, and the run after 10 s.
//
//	the run is claimed at 0 s for 30 s, and the lock for 5 s
//	the lock is renewed at 1.7 s, and lasted until 31.7 s
//	the process is killed
//	at 30 s, the successor takes over the run, and asks for the lock
func TestALockOfAKilledRunEndsBeforeTheRun(t *testing.T) {
	const user = "user=7"
	type keys interface {
		Release(ctx context.Context) error
	}
	one := func(ctx context.Context, l *lock.Locker) (keys, error) { return l.Acquire(ctx, user) }
	set := func(ctx context.Context, l *lock.Locker) (keys, error) {
		return l.AcquireAll(ctx, []string{"item=7", user})
	}
	permit := func(ctx context.Context, l *lock.Locker) (keys, error) { return l.AcquireAny(ctx, []string{user}) }
	resumed := func(ctx context.Context, l *lock.Locker) (keys, error) {
		e, err := l.Acquire(ctx, user)
		if err != nil {
			return nil, err
		}
		ticket, err := e.HandOver(ctx, time.Second)
		if err != nil {
			return nil, err
		}
		return l.Resume(ctx, ticket)
	}
	outside := func(_ context.Context, l *lock.Locker) (keys, error) {
		return l.Acquire(context.Background(), user) //nolint:contextcheck // the control: a lock of no run
	}
	inner := func(ctx context.Context, l *lock.Locker) (keys, error) {
		go func() {
			_, _, _ = l.Once(ctx, user, nil, func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })
		}()
		return nil, nil //nolint:nilnil // the run has the key
	}
	for name, tt := range map[string]struct {
		run, lock time.Duration // their leases
		acquire   func(ctx context.Context, l *lock.Locker) (keys, error)
		latency   time.Duration
		outlives  bool
	}{
		"a lock":                        {run: 30 * time.Second, lock: 30 * time.Second, acquire: one},
		"a set":                         {run: 30 * time.Second, lock: 30 * time.Second, acquire: set},
		"a permit":                      {run: 30 * time.Second, lock: 30 * time.Second, acquire: permit},
		"a resumed lock":                {run: 30 * time.Second, lock: 30 * time.Second, acquire: resumed},
		"a run in the run":              {run: 30 * time.Second, lock: 30 * time.Second, acquire: inner},
		"a distant store":               {run: 30 * time.Second, lock: 30 * time.Second, acquire: one, latency: 200 * time.Millisecond},
		"a short lease":                 {run: time.Second, lock: time.Second, acquire: one, latency: 5 * time.Millisecond},
		"a run of a shorter lease":      {run: 3 * time.Second, lock: 30 * time.Second, acquire: one},
		"a run of a longer lease":       {run: 30 * time.Second, lock: 3 * time.Second, acquire: one},
		"control: a lock outside of it": {run: 30 * time.Second, lock: 30 * time.Second, acquire: outside, outlives: true},
		"control: with a shorter lease": {run: 3 * time.Second, lock: 30 * time.Second, acquire: outside, outlives: true},
	} {
		t.Run(name, func(t *testing.T) {
			outlived := 0
			for acquiredAt := range 3 {
				for moment := range 24 {
					acquired := time.Duration(acquiredAt) * tt.run / 7
					killed := acquired + time.Duration(moment+1)*tt.run/12 // so up to two leases after it, between any two renewals
					synctest.Test(t, func(t *testing.T) {
						if !endsBeforeItsRun(t, tt.run, tt.lock, tt.latency, acquired, killed, user, func(ctx context.Context, l *lock.Locker) error {
							_, err := tt.acquire(ctx, l)
							return err
						}) {
							outlived++
						}
					})
				}
			}
			if tt.outlives {
				require.Positive(t, outlived)
			} else {
				require.Zero(t, outlived)
			}
		})
	}
}

// endsBeforeItsRun kills a process whose run has a lock, and reports whether a successor gets the
// lock as soon as the run.
func endsBeforeItsRun(t *testing.T, run, locked, latency, acquired, killed time.Duration, user string,
	acquire func(ctx context.Context, l *lock.Locker) error,
) (ends bool) {
	t.Helper()
	s := fault.New()
	s.Every(fault.Slow(latency))
	opts := []lock.Option{lock.WithLogger(quiet), lock.WithRerunAbandoned(), lock.WithBudget(min(500*time.Millisecond, run/2))}
	victim := &mortal{Store: s}
	first, second := lock.New(victim, append(opts, lock.WithLease(run))...), lock.New(s, append(opts, lock.WithLease(run))...)
	go func() {
		_, _, _ = first.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
			time.Sleep(acquired)
			if err := acquire(ctx, first.With(lock.WithLease(locked))); err != nil {
				t.Error(err)
			}
			time.Sleep(killed - acquired)
			if err := context.Cause(ctx); err != nil {
				t.Error(err)
			}
			victim.killed.Store(true)
			<-ctx.Done()
			return nil, ctx.Err()
		})
	}()
	time.Sleep(killed + 2*latency)
	require.Eventually(t, victim.killed.Load, time.Minute, time.Millisecond)
	for tries := 0; ; tries++ {
		require.Less(t, tries, 1000)
		_, _, err := second.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.Equal(t, 2, lock.Attempt(ctx))
			_, _, err := second.With(lock.WithLease(locked)).Once(ctx, user, nil, func(context.Context) ([]byte, error) { return nil, nil })
			if err != nil {
				return nil, err
			}
			return nil, second.Do(ctx, user, func(context.Context) error { return nil })
		})
		if refused, is := errors.AsType[*lock.RefusedError](err); is && refused.Entry.Key == key {
			time.Sleep(run / 300)
			continue
		}
		ends = err == nil
		break
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_ = first.Close(gone)
	require.NoError(t, second.Close(t.Context()))
	time.Sleep(time.Minute)
	return ends
}

// A run that goes on keeps its lock, also while the store does not answer for a third of a lease.
func TestALockInALongRunIsHeldToItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithMaxHold(time.Hour))
		_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			e, err := l.Acquire(ctx, "user=7")
			require.NoError(t, err)
			for range 100 {
				time.Sleep(lease + lease/7)
				s.Every(fault.HangRequest)
				time.Sleep(lease / 3)
				s.Every(nil)
				require.NoError(t, context.Cause(e.Context()))
			}
			return nil, e.Release(ctx)
		})
		require.NoError(t, err)
	})
}

// The lock of a run survives an outage of half a lease, at any moment between the renewals of the two. It
// was lost in a fifth of these outages while its renewals did not follow those of the run.
func TestALockInARunSurvivesAnOutageOfHalfALease(t *testing.T) {
	const long = 30 * time.Second
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(long), lock.WithBudget(long/60), lock.WithMaxHold(24*time.Hour))
		_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			e, err := l.Acquire(ctx, "user=7")
			require.NoError(t, err)
			for i := range 300 {
				time.Sleep(2*long + long*time.Duration(i*137%1000)/1000)
				s.Every(fault.HangRequest)
				time.Sleep(long / 2)
				s.Every(nil)
				require.NoError(t, context.Cause(e.Context()), i)
			}
			return nil, e.Release(ctx)
		})
		require.NoError(t, err)
	})
}

// A takeover whose work fails, for example because an inner guard has refused it, is given back as
// it was: abandoned, and for the next call to take over at once. Before, each later call was refused
// until the lease of the failed takeover was over.
func TestAFailedTakeoverIsGivenBackAsItWas(t *testing.T) {
	for name, tt := range map[string]struct {
		meets  []fault.Func // of the claim that gives it back
		lapses bool         // the store does not hear of it
	}{
		"answered":          {},
		"the reply is lost": {meets: []fault.Func{fault.LoseReply}},
		"the reply hangs":   {meets: []fault.Func{fault.HangReply}},
		"it is refused":     {meets: []fault.Func{fault.Refuse}},
		"nothing arrives":   {meets: []fault.Func{fault.HangRequest, fault.HangRequest, fault.HangRequest, fault.HangRequest}, lapses: true},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			rerun := []lock.Option{lock.WithKeep(keep), lock.WithRerunAbandoned()}
			l, other, careful := open(rerun...), open(rerun...), open(lock.WithKeep(keep))
			crash(t, s, func(context.Context) {}, rerun...)
			time.Sleep(lease)
			refused := errors.New("an inner guard has refused it")
			_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				require.Equal(t, 2, lock.Attempt(ctx))
				s.Next(fault.Claim, tt.meets...)
				return nil, refused
			})
			require.ErrorIs(t, err, refused)
			s.Skip(fault.Claim)
			time.Sleep(2 * time.Millisecond)
			e := s.State(t, record)
			if tt.lapses {
				require.Equal(t, lock.Held, e.State)
				time.Sleep(lease)
				e = s.State(t, record)
			} else {
				require.Equal(t, 1, e.Attempt)
			}
			require.Equal(t, lock.Abandoned, e.State)
			require.Equal(t, print1, e.Fingerprint)
			require.InDelta(t, keep, e.Left, float64(2*lease))
			_, _, err = careful.Once(t.Context(), key, print1, mustNotRun)
			require.ErrorIs(t, err, lock.ErrAbandoned)
			_, _, err = other.Once(t.Context(), key, print2, mustNotRun)
			require.ErrorIs(t, err, lock.ErrMismatch)
			_, _, err = other.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				require.Greater(t, lock.Attempt(ctx), 1)
				return nil, nil
			})
			require.NoError(t, err)
		})
	}
}

// A claim that gives back a takeover, and lands when a successor has the record, leaves it alone.
func TestATakeoverThatIsGivenBackLateDoesNotDisturbItsSuccessor(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		rerun := []lock.Option{lock.WithKeep(keep), lock.WithRerunAbandoned()}
		l, other := open(rerun...), open(rerun...)
		crash(t, s, func(context.Context) {}, rerun...)
		time.Sleep(lease)
		_, _, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
			s.Next(fault.Claim, fault.Late(2*lease), fault.HangRequest, fault.HangRequest)
			return nil, errors.New("mine")
		})
		require.Error(t, err)
		s.Skip(fault.Claim)
		time.Sleep(lease)
		receipt, _, err := other.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			time.Sleep(3 * lease)
			return []byte("other"), context.Cause(ctx)
		})
		require.NoError(t, err)
		require.Equal(t, "other", string(receipt))
		require.Equal(t, lock.Settled, s.State(t, record).State)
	})
}
