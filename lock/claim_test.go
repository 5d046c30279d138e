package lock_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

// Two claims of one process must not meet at the server. Otherwise the claim that is refused
// would take the granted one for an orphan, and remove it.
func TestDoubleClickInsideOneRoundTrip(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		s.Every(fault.Slow(50*time.Millisecond), fault.Claim)
		first := make(chan *lock.Lease, 1)
		go func() {
			e, err := l.Acquire(context.Background(), key)
			assert.NoError(t, err)
			first <- e
		}()
		synctest.Wait() // the claim is in flight
		require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrHeld)
		require.Equal(t, 1, s.Count(fault.Claim), "refused without a round trip")
		e := <-first
		require.NoError(t, e.Context().Err())
		require.Equal(t, lock.Held, s.State(t, key).State)
		require.NoError(t, e.Release(t.Context()))
	})
}

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
func knows(t *testing.T, opts []lock.Option, work func(ctx context.Context, l *lock.Locker) error, check func(t *testing.T, s *claims)) {
	t.Helper()
	for name, as := range map[string]func(*fault.Store) lock.Store{
		"apart": apart, "direct": direct, "in the process": func(*fault.Store) lock.Store { return memstore.New() },
	} {
		t.Run(name, virtual.Test(func(t *testing.T) {
			s := &claims{Store: as(fault.New())}
			l := lock.New(s, append([]lock.Option{lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget)}, opts...)...)
			require.NoError(t, work(t.Context(), l))
			require.NoError(t, l.Close(t.Context()))
			s.mu.Lock()
			defer s.mu.Unlock()
			check(t, s)
		}))
	}
}

// A store can compute its stored value from the claim of a release or settle.
func TestEndsGetTheClaim(t *testing.T) {
	for name, tt := range map[string]struct {
		opts []lock.Option
		work func(ctx context.Context, l *lock.Locker) error
	}{
		"release": {work: func(ctx context.Context, l *lock.Locker) error { return l.Do(ctx, key, nothing) }},
		"release after a renewal": {[]lock.Option{lock.WithFencing()}, func(ctx context.Context, l *lock.Locker) error {
			return l.Do(ctx, key, func(context.Context) error { time.Sleep(2 * lease); return nil })
		}},
		"settle": {work: func(ctx context.Context, l *lock.Locker) error {
			_, _, err := l.Once(ctx, key, print1, func(context.Context) ([]byte, error) { return nil, nil })
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			knows(t, tt.opts, tt.work, func(t *testing.T, s *claims) {
				require.Equal(t, name == "settle", bytes.Equal(print1, s.last.Fingerprint) && s.last.Linger > 0)
				require.Len(t, s.ended, 1)
				s.last.Lease, s.ended[0].Lease = 0, 0
				require.Equal(t, s.last, s.ended[0])
			})
		})
	}
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
			knows(t, tt.opts, func(ctx context.Context, l *lock.Locker) error {
				_, _, err := l.Once(ctx, key, nil, func(ctx context.Context) ([]byte, error) {
					time.Sleep(lease)
					err := lock.Commit(ctx)
					time.Sleep(lease)
					return nil, err
				})
				return err
			}, func(t *testing.T, s *claims) {
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

func TestWithSharesEverything(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		slow := l.With(lock.WithMaxHold(time.Hour))
		e := acquired(t, l, key)
		require.ErrorIs(t, slow.Do(t.Context(), key, nil), lock.ErrHeld)
		require.Equal(t, 1, s.Count(fault.Claim))
		require.NoError(t, e.Release(t.Context()))
		require.NoError(t, slow.Close(t.Context()))
		require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrClosed)
	})
}

func TestOptionsThatContradict(t *testing.T) {
	for name, open := range map[string]func(){
		"nil store":        func() { lock.New(nil) },
		"short lease":      func() { lock.New(memstore.New(), lock.WithLease(900*time.Millisecond)) },
		"hold below lease": func() { lock.New(memstore.New(), lock.WithMaxHold(time.Second)) },
		"with, later":      func() { lock.New(memstore.New()).With(lock.WithBudget(time.Minute)) },
		"zero lease":       func() { lock.WithLease(0) },
		"negative budget":  func() { lock.WithBudget(-1) },
		"nil observer":     func() { lock.WithObserver(nil) },
		"nil logger":       func() { lock.WithLogger(nil) },
		"nil option":       func() { lock.New(memstore.New(), nil) },
		"hold of no time":  func() { lock.WithMaxHold(0) },
	} {
		t.Run(name, func(t *testing.T) { require.Panics(t, open) })
	}
}

func TestBadKeys(t *testing.T) {
	l := fault.Locker(t, memstore.New())
	for name, k := range map[string]string{"empty": "", "long": string(make([]byte, keytext.MaxBytes+1)), "reserved": "once:1"} {
		_, one := l.Acquire(t.Context(), k)
		_, set := l.AcquireAll(t.Context(), []string{"a", k})
		_, permit := l.AcquireAny(t.Context(), []string{"a", k})
		for _, err := range []error{one, set, permit} {
			require.Error(t, err, name)
			require.NotErrorIs(t, err, lock.ErrUnavailable, name)
		}
	}
	_, err := l.AcquireAll(t.Context(), nil)
	require.Error(t, err)
	_, err = l.AcquireAny(t.Context(), nil)
	require.Error(t, err)
	require.Zero(t, l.Stats().Active)
	e := acquired(t, l, string(make([]byte, keytext.MaxBytes)))
	require.NoError(t, e.Release(t.Context()))
}
