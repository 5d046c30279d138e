package lock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

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
