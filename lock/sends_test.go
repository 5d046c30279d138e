package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// Faults of a store that answers.
var (
	full        fault.Func = func(context.Context, func() error) error { return lock.ErrFull }
	denied      fault.Func = func(context.Context, func() error) error { return errors.Join(lock.ErrNotApplied, lock.ErrDenied) }
	unsupported fault.Func = func(context.Context, func() error) error { return errors.ErrUnsupported }
)

// How often a claim is sent, and when, as long as it fails.
func TestSendsOfAClaim(t *testing.T) {
	const third, atOnce = budget / 3, time.Duration(0)
	for _, tt := range []struct {
		name      string
		faults    []fault.Func
		sends     int
		from, to  time.Duration // the end
		recovered bool
	}{
		{"answered", nil, 1, atOnce, atOnce, false},
		{"slow", []fault.Func{fault.Slow(third / 2)}, 1, third / 2, third / 2, false},
		{"silent", []fault.Func{fault.HangRequest}, 2, third, third, true},
		{"applied and silent", []fault.Func{fault.HangReply}, 2, third, third, true},
		{"silent, then slow", []fault.Func{fault.HangRequest, fault.Slow(third)}, 2, 2 * third, 2 * third, true},
		{"silent, then failed", []fault.Func{fault.HangRequest, fault.LoseRequest}, 3, third + time.Millisecond, third + 10*time.Millisecond, true},
		{"failed", []fault.Func{fault.LoseRequest}, 2, time.Millisecond, 5 * time.Millisecond, true},
		{"applied and failed", []fault.Func{fault.LoseReply}, 2, time.Millisecond, 5 * time.Millisecond, true},
		{"refused", []fault.Func{fault.Refuse}, 2, time.Millisecond, 5 * time.Millisecond, false},
	} {
		bubbleOverCase(t, tt.name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var seen events
			l := open(lock.WithObserver(seen.observe))
			s.Next(fault.Claim, tt.faults...)
			began := time.Now()
			e := acquired(t, l, key)
			took := time.Since(began)
			require.GreaterOrEqual(t, took, tt.from)
			require.LessOrEqual(t, took, tt.to)
			require.Equal(t, tt.sends, s.Count(fault.Claim))
			require.Equal(t, tt.recovered, seen.count(lock.EventRecovered) == 1)
			require.NoError(t, e.Release(t.Context()))
			require.Equal(t, lock.Free, s.State(t, key).State)
			synctest.Wait()
			require.Equal(t, tt.recovered, s.Count(fault.Release) > 1, "what may still land is removed, and nothing else")
		})
	}
}

// spend takes all retry tokens.
func spend(t *testing.T, s *fault.Store, l *lock.Locker) {
	t.Helper()
	s.Every(fault.Refuse, fault.Claim)
	for l.Stats().Retries > 0 {
		require.Error(t, l.Do(t.Context(), "another", nil))
	}
	s.Every(nil, fault.Claim)
}

// Without a retry token, a silent send has the whole budget, and a failure ends the call. Each second adds ten
// tokens, and every five answered calls add one.
func TestRetryBudget(t *testing.T) {
	const brief = 3 * time.Millisecond // a token takes 100
	for _, tt := range []struct {
		name  string
		fault fault.Func
		err   error
		took  time.Duration
	}{
		{"slow", fault.Slow(brief - time.Millisecond), nil, brief - time.Millisecond},
		{"silent", fault.HangRequest, lock.ErrUnknown, brief},
		{"failed", fault.LoseRequest, lock.ErrUnknown, 0},
		{"refused", fault.Refuse, lock.ErrUnavailable, 0},
	} {
		bubbleOverCase(t, tt.name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithBudget(brief))
			spend(t, s, l)
			s.Every(tt.fault, fault.Claim)
			before, began := s.Count(fault.Claim), time.Now()
			require.ErrorIs(t, l.Do(t.Context(), key, nothing), tt.err)
			require.Equal(t, tt.took, time.Since(began))
			require.Equal(t, before+1, s.Count(fault.Claim))
			s.Every(nil, fault.Claim)
		})
	}
	bubbleOverCase(t, "filled", direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		spend(t, s, l)
		require.Zero(t, l.Stats().Retries)
		time.Sleep(time.Second)
		require.Equal(t, 10, l.Stats().Retries)
		time.Sleep(time.Hour)
		require.Equal(t, 100, l.Stats().Retries, "time alone saves no more")
		for range 50 {
			require.NoError(t, l.Do(t.Context(), key, nothing))
		}
		require.Equal(t, 120, l.Stats().Retries, "a fifth of a hundred answered calls")
		for range 5000 {
			require.NoError(t, l.Do(t.Context(), key, nothing))
		}
		require.Equal(t, 1000, l.Stats().Retries)
	})
}

// Some errors are answers of the store, and end the call. The outcome is unknown only if an
// earlier send had no answer.
func TestAnswersThatAreErrors(t *testing.T) {
	for _, tt := range []struct {
		name    string
		faults  []fault.Func
		is      error
		unknown bool
	}{
		{"full", []fault.Func{full}, lock.ErrFull, false},
		{"denied", []fault.Func{denied}, lock.ErrDenied, false},
		{"lost, then denied", []fault.Func{fault.LoseRequest, denied}, lock.ErrDenied, true},
		{"refused, then full", []fault.Func{fault.Refuse, full}, lock.ErrFull, false},
		{"unsupported", []fault.Func{unsupported}, errors.ErrUnsupported, false},
	} {
		bubbleOverCase(t, tt.name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open()
			s.Next(fault.Claim, tt.faults...)
			began := time.Now()
			_, err := l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, tt.is)
			require.Equal(t, tt.unknown, errors.Is(err, lock.ErrUnknown))
			require.Less(t, time.Since(began), 10*time.Millisecond)
			require.Equal(t, len(tt.faults), s.Count(fault.Claim))
			synctest.Wait()
			require.Equal(t, tt.unknown, s.Count(fault.Release) > 0, "it is cleaned up")
		})
	}
}

// A caller that leaves during its send waits for the answer for a third of its budget at most.
// No second send follows. An answer in time is a lease whose context has ended.
func TestCallerGoesDuringItsOwnSend(t *testing.T) {
	const after, third = budget / 10, budget / 3
	errLeft := errors.New("has left")
	leaves := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(after, func() { cancel(errLeft) })
		return ctx, func() { cancel(nil) }
	}
	expires := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, after)
	}
	expiresLate := func(ctx context.Context) (context.Context, context.CancelFunc) {
		end := time.Now().Add(after)
		ctx, cancel := context.WithDeadline(ctx, end.Add(time.Millisecond))
		return eager{ctx, end}, cancel
	}
	for name, tt := range map[string]struct {
		ctx     func(context.Context) (context.Context, context.CancelFunc)
		claim   fault.Func
		want    error
		took    time.Duration
		granted bool
	}{
		"canceled":                       {ctx: leaves, claim: fault.HangReply, want: errLeft, took: third},
		"canceled, and answered in time": {ctx: leaves, claim: fault.Slow(third / 2), want: errLeft, took: third / 2, granted: true},
		"deadline":                       {ctx: expires, claim: fault.HangReply, want: context.DeadlineExceeded, took: after},
		"deadline that is reported late": {ctx: expiresLate, claim: fault.HangReply, want: context.DeadlineExceeded, took: after},
	} {
		bubbleOverCase(t, name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			ctx, cancel := tt.ctx(t.Context())
			defer cancel()
			s.Every(tt.claim, fault.Claim)
			began := time.Now()
			e, err := open().Acquire(ctx, key)
			require.InDelta(t, tt.took, time.Since(began), float64(time.Millisecond))
			require.Equal(t, 1, s.Count(fault.Claim))
			if tt.granted {
				require.NoError(t, err)
				require.ErrorIs(t, context.Cause(e.Context()), tt.want)
				require.NoError(t, e.Release(t.Context()))
				return
			}
			require.ErrorIs(t, err, tt.want)
			require.ErrorIs(t, err, lock.ErrUnknown)
			synctest.Wait()
			require.Equal(t, lock.Free, s.State(t, key).State, "it is cleaned up")
		})
	}
}

// eager is a context that ends after its deadline, as they all do, if only by
// some µs.
type eager struct {
	context.Context //nolint:containedctx // it is one

	deadline time.Time
}

func (e eager) Deadline() (time.Time, bool) { return e.deadline, true }

// A lease is ended although its caller has gone, and as surely as any other.
func TestEndsForCallersThatHaveGone(t *testing.T) {
	for name, tt := range map[string]struct {
		faults []fault.Func
		sends  int
		took   time.Duration
	}{
		"answered":    {nil, 1, 0},
		"silent":      {[]fault.Func{fault.HangRequest}, 2, budget / 3},
		"reply hangs": {[]fault.Func{fault.HangReply}, 2, budget / 3},
	} {
		for end, do := range map[fault.Op]func(context.Context, *lock.Lease) error{
			fault.Release: func(ctx context.Context, e *lock.Lease) error { return e.Release(ctx) },
			fault.Settle:  func(ctx context.Context, e *lock.Lease) error { return e.Settle(ctx, []byte("receipt"), time.Hour) },
		} {
			bubbleOverCase(t, name+"/"+string(end), direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				ctx, cancel := context.WithCancel(t.Context())
				e, err := open().Acquire(ctx, key)
				require.NoError(t, err)
				cancel()
				s.Next(end, tt.faults...)
				began := time.Now()
				require.NoError(t, do(ctx, e))
				require.Equal(t, tt.took, time.Since(began))
				require.Equal(t, tt.sends, s.Count(end))
				if end == fault.Release {
					require.Equal(t, lock.Free, s.State(t, key).State)
					return
				}
				require.Equal(t, []byte("receipt"), s.State(t, key).Receipt)
				s.Free(t, key)
			})
		}
	}
}

// insists is a store that answers after most of a third of the budget, even if contexts end before.
func insists(_ context.Context, apply func() error) error {
	time.Sleep(budget/3 - time.Millisecond)
	return apply()
}

// A caller whose context ends returns after a third of the budget at the latest, for any fault of
// its claim, with the cause or with a lease.
func TestACallerThatLeavesIsBackSoon(t *testing.T) {
	for name, tt := range map[string]struct {
		fault   fault.Func
		prepare func(t *testing.T, s *fault.Store, l *lock.Locker)
	}{
		"silence":                 {fault: fault.HangRequest},
		"silence, without tokens": {fault: fault.HangRequest, prepare: spend},
		"an own orphan": {fault: insists, prepare: func(t *testing.T, s *fault.Store, l *lock.Locker) {
			s.Every(fault.HangReply, fault.Claim)
			s.Every(fault.HangRequest, fault.Release)
			require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrUnknown)
		}},
		"a key that changes hands": {fault: insists, prepare: func(_ *testing.T, s *fault.Store, _ *lock.Locker) { s.Serve(neverOurs{s.Server()}) }},
	} {
		for leaves := time.Millisecond; leaves < budget; leaves += 30 * time.Millisecond {
			bubbleCase(t, fmt.Sprintf("%s, after %v", name, leaves), func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open()
				if tt.prepare != nil {
					tt.prepare(t, s, l)
				}
				s.Every(tt.fault)
				ctx, cancel := context.WithCancel(t.Context())
				began := time.Now()
				time.AfterFunc(leaves, cancel)
				e, err := l.Acquire(ctx, key)
				late := time.Since(began) - leaves
				require.LessOrEqual(t, late, budget/3)
				if err != nil && late > 0 {
					require.ErrorIs(t, err, context.Canceled)
				}
				s.Every(nil)
				_ = e.Release(t.Context())
			})
		}
	}
}

// neverOurs is a server whose answers to claims say that the key is free again.
type neverOurs struct{ lock.Store }

func (neverOurs) Claim(context.Context, string, lock.Claim) (lock.Entry, error) {
	return lock.Entry{}, nil
}
