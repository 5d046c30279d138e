package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

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
	one := func(ctx context.Context, l *lock.Locker) error { _, err := l.Acquire(ctx, user); return err }
	set := func(ctx context.Context, l *lock.Locker) error {
		_, err := l.AcquireAll(ctx, []string{"item=7", user})
		return err
	}
	permit := func(ctx context.Context, l *lock.Locker) error {
		_, err := l.AcquireAny(ctx, []string{user})
		return err
	}
	resumed := func(ctx context.Context, l *lock.Locker) error {
		e, err := l.Acquire(ctx, user)
		if err != nil {
			return err
		}
		ticket, err := e.HandOver(ctx, time.Second)
		if err == nil {
			_, err = l.Resume(ctx, ticket)
		}
		return err
	}
	outside := func(_ context.Context, l *lock.Locker) error {
		_, err := l.Acquire(context.Background(), user) //nolint:contextcheck // the control: a lock of no run
		return err
	}
	inner := func(ctx context.Context, l *lock.Locker) error {
		go func() {
			_, _, _ = l.Once(ctx, user, nil, func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })
		}()
		return nil
	}
	for name, tt := range map[string]struct {
		run, lock time.Duration // their leases
		acquire   func(ctx context.Context, l *lock.Locker) error
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
						if !endsBeforeItsRun(t, tt.run, tt.lock, tt.latency, acquired, killed, user, tt.acquire) {
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
	s, victim := fault.New().Every(fault.Slow(latency)), fault.New().Every(fault.Slow(latency))
	victim.Serve(s.Server())
	gone := make(chan struct{})
	opts := []lock.Option{lock.WithLogger(quiet), lock.WithRerunAbandoned(), lock.WithBudget(min(500*time.Millisecond, run/2))}
	first, second := lock.New(victim, append(opts, lock.WithLease(run))...), lock.New(s, append(opts, lock.WithLease(run))...)
	go func() {
		_, _, _ = first.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
			time.Sleep(acquired)
			assert.NoError(t, acquire(ctx, first.With(lock.WithLease(locked))))
			time.Sleep(killed - acquired)
			assert.NoError(t, context.Cause(ctx))
			victim.Every(deadEnd)
			close(gone)
			<-ctx.Done()
			return nil, ctx.Err()
		})
	}()
	<-gone
	for tries := 0; ; tries++ {
		require.Less(t, tries, 1000)
		_, _, err := second.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.Equal(t, 2, lock.Attempt(ctx))
			_, _, err := second.With(lock.WithLease(locked)).Once(ctx, user, nil, func(context.Context) ([]byte, error) { return nil, nil })
			if err != nil {
				return nil, err
			}
			return nil, second.Do(ctx, user, nothing)
		})
		if refused, is := errors.AsType[*lock.RefusedError](err); is && refused.Entry.Key == key {
			time.Sleep(run / 300)
			continue
		}
		ends = err == nil
		break
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = first.Close(ended)
	require.NoError(t, second.Close(t.Context()))
	time.Sleep(time.Minute)
	return ends
}

// The lock of a run survives an outage of half a lease, at any moment between the renewals of the two. It
// was lost in a fifth of these outages while its renewals did not follow those of the run.
func TestALockInARunSurvivesAnOutageOfHalfALease(t *testing.T) {
	const long = 30 * time.Second
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(long), lock.WithBudget(long/60), lock.WithMaxHold(24*time.Hour))
		must.Run(t)(l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			e := must.Get(l.Acquire(ctx, "user=7"))(t)
			for i := range 300 {
				time.Sleep(2*long + long*time.Duration(i*137%1000)/1000)
				s.Every(fault.HangRequest)
				time.Sleep(long / 2)
				s.Every(nil)
				require.NoError(t, context.Cause(e.Context()), i)
			}
			return nil, e.Release(ctx)
		}))
	})
}

// A takeover whose work fails, as when an inner guard has refused it, is given back as it was: abandoned, and for the
// next call to take over at once.
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
			abandoned(t, s, rerun...)
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
			require.ErrorIs(t, ask(t, careful, print1), lock.ErrAbandoned)
			require.ErrorIs(t, ask(t, other, print2), lock.ErrMismatch)
			must.Run(t)(other.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				require.Greater(t, lock.Attempt(ctx), 1)
				return nil, nil
			}))
		})
	}
}

// A claim that gives back a takeover, and lands when a successor has the record, leaves it alone.
func TestATakeoverThatIsGivenBackLateDoesNotDisturbItsSuccessor(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		rerun := []lock.Option{lock.WithKeep(keep), lock.WithRerunAbandoned()}
		l, other := open(rerun...), open(rerun...)
		abandoned(t, s, rerun...)
		_, _, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
			s.Next(fault.Claim, fault.Late(2*lease), fault.HangRequest, fault.HangRequest)
			return nil, errors.New("mine")
		})
		require.Error(t, err)
		s.Skip(fault.Claim)
		time.Sleep(lease)
		require.Equal(t, "other", must.Run(t)(other.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			time.Sleep(3 * lease)
			return []byte("other"), context.Cause(ctx)
		})))
		require.Equal(t, lock.Settled, s.State(t, record).State)
	})
}
