package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/carry"
	"github.com/httplatch/httplatch/lock"
)

// Faults of a store that returns in time.
var (
	// stall is given up by a store that has seen others answered meanwhile.
	stall fault = func(context.Context, func() error) error { return fmt.Errorf("shared: %w", carry.ErrStalled) }
	// stallUnsent is one that was not even written.
	stallUnsent fault = func(context.Context, func() error) error { return errors.Join(lock.ErrNotApplied, carry.ErrStalled) }
	full        fault = func(context.Context, func() error) error { return lock.ErrFull }
	denied      fault = func(context.Context, func() error) error { return errors.Join(lock.ErrNotApplied, lock.ErrDenied) }
	unsupported fault = func(context.Context, func() error) error { return errors.ErrUnsupported }
)

// How often a claim is sent, and when, as long as it fails.
func TestSendsOfAClaim(t *testing.T) {
	const third, atOnce = budget / 3, time.Duration(0)
	for _, tt := range []struct {
		name      string
		faults    []fault
		sends     int
		from, to  time.Duration // the end
		recovered bool
	}{
		{"answered", nil, 1, atOnce, atOnce, false},
		{"slow", []fault{slow(third / 2)}, 1, third / 2, third / 2, false},
		{"silent", []fault{hangRequest}, 2, third, third, true},
		{"applied and silent", []fault{hangReply}, 2, third, third, true},
		{"silent twice", []fault{hangRequest, hangRequest}, 3, 2 * third, 2 * third, true},
		{"failed", []fault{loseRequest}, 2, time.Millisecond, 5 * time.Millisecond, true},
		{"applied and failed", []fault{loseReply}, 2, time.Millisecond, 5 * time.Millisecond, true},
		{"refused", []fault{refuse}, 2, time.Millisecond, 5 * time.Millisecond, false},
		{"stalled", []fault{stall}, 2, atOnce, atOnce, true},
		{"stalled unsent", []fault{stallUnsent}, 2, atOnce, atOnce, false},
		{"stalled twice", []fault{stall, stall}, 3, atOnce, atOnce, true},
		{"stalled three times", []fault{stall, stall, stall}, 4, atOnce, atOnce, true},
		{"stalled, then silent", []fault{stall, hangRequest}, 3, third, third, true},
		{"stalled, then failed", []fault{stall, loseRequest}, 3, time.Millisecond, 10 * time.Millisecond, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubbleOver(t, inTimed, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				var seen events
				l := open(lock.WithObserver(seen.observe))
				s.next(claim, tt.faults...)
				began := time.Now()
				e, err := l.Acquire(t.Context(), key)
				require.NoError(t, err)
				took := time.Since(began)
				require.GreaterOrEqual(t, took, tt.from)
				require.LessOrEqual(t, took, tt.to)
				require.Equal(t, tt.sends, s.count(claim))
				require.Equal(t, tt.recovered, seen.count(lock.EventRecovered) == 1)
				require.NoError(t, e.Release(t.Context()))
				require.Equal(t, lock.Free, s.state(t, key).State)
				synctest.Wait()
				require.Equal(t, tt.recovered, s.count(release) > 1, "it is swept for if it may still land, and else not")
			})
		})
	}
}

// What a store is told of the sends, and that a caller goes on as with any other
// silence if its sends stall and stall.
func TestSendsThatStall(t *testing.T) {
	bubbleOver(t, inTimed, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		var stalls []int // of the tries before; -1: not a try
		s.every(func(ctx context.Context, apply func() error) error {
			before := -1
			if try, ok := ctx.(*carry.Try); ok {
				before = try.Stalls
			}
			stalls = append(stalls, before)
			return stall(ctx, apply)
		}, claim)
		began := time.Now()
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		require.ErrorIs(t, err, carry.ErrStalled)
		require.Equal(t, []int{0, 1, 2}, stalls[:3])
		for _, before := range stalls[3:] {
			require.Equal(t, -1, before)
		}
		require.Equal(t, budget, time.Since(began), "and not in a tight loop")
		require.LessOrEqual(t, len(stalls), 8)
		s.every(stallUnsent, claim)
		_, err = l.Acquire(t.Context(), key+"2")
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrUnknown, "none was sent")
	})
}

// Some errors are answers, and end it. Whether it is certain then depends on the
// sends before.
func TestAnswersThatAreErrors(t *testing.T) {
	for _, tt := range []struct {
		name    string
		faults  []fault
		is      error
		unknown bool
	}{
		{"full", []fault{full}, lock.ErrFull, false},
		{"denied", []fault{denied}, lock.ErrDenied, false},
		{"stalled, then denied", []fault{stall, denied}, lock.ErrDenied, true},
		{"unsupported", []fault{unsupported}, errors.ErrUnsupported, false},
		{"stalled, then full", []fault{stall, full}, lock.ErrFull, true},
		{"stalled unsent, then full", []fault{stallUnsent, full}, lock.ErrFull, false},
		{"stalled, then unsupported", []fault{stall, unsupported}, errors.ErrUnsupported, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubbleOver(t, inTimed, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				l := open()
				s.next(claim, tt.faults...)
				began := time.Now()
				_, err := l.Acquire(t.Context(), key)
				require.ErrorIs(t, err, tt.is)
				require.Equal(t, tt.unknown, errors.Is(err, lock.ErrUnknown))
				require.Zero(t, time.Since(began))
				require.Equal(t, len(tt.faults), s.count(claim))
				synctest.Wait()
				require.Equal(t, tt.unknown, s.count(release) > 0, "it is swept for")
			})
		})
	}
}

// A caller that goes may still get the answer to what was sent, for a third of its
// budget at most, and nothing is sent for it afterwards.
func TestCallerGoesDuringItsOwnSend(t *testing.T) {
	const after, third = budget / 10, budget / 3
	errLeft := errors.New("has left")
	for name, tt := range map[string]struct {
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want error
		took time.Duration
	}{
		"canceled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(after, func() { cancel(errLeft) })
			return ctx, func() { cancel(nil) }
		}, errLeft, third},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, after)
		}, context.DeadlineExceeded, after},
		"deadline that is told late": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			end := time.Now().Add(after)
			ctx, cancel := context.WithDeadline(ctx, end.Add(time.Millisecond))
			return eager{ctx, end}, cancel
		}, context.DeadlineExceeded, after},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleOver(t, inTimed, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				l := open()
				ctx, cancel := tt.ctx(t.Context())
				defer cancel()
				s.every(hangReply, claim)
				began := time.Now()
				_, err := l.Acquire(ctx, key)
				require.ErrorIs(t, err, tt.want)
				require.ErrorIs(t, err, lock.ErrUnknown)
				require.InDelta(t, tt.took, time.Since(began), float64(time.Millisecond))
				require.Equal(t, 1, s.count(claim))
				synctest.Wait()
				require.Equal(t, lock.Free, s.state(t, key).State, "it is swept for")
			})
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
		faults []fault
		sends  int
		took   time.Duration
	}{
		"answered":      {nil, 1, 0},
		"stalled":       {[]fault{stall}, 2, 0},
		"reply stalled": {[]fault{func(ctx context.Context, apply func() error) error { _ = apply(); return stall(ctx, nil) }}, 2, 0},
		"silent":        {[]fault{hangRequest}, 2, budget / 3},
		"reply hangs":   {[]fault{hangReply}, 2, budget / 3},
	} {
		for end, do := range map[op]func(context.Context, *lock.Lease) error{
			release: func(ctx context.Context, e *lock.Lease) error { return e.Release(ctx) },
			settle:  func(ctx context.Context, e *lock.Lease) error { return e.Settle(ctx, []byte("receipt"), time.Hour) },
		} {
			t.Run(name+"/"+string(end), func(t *testing.T) {
				bubbleOver(t, inTimed, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
					ctx, cancel := context.WithCancel(t.Context())
					e, err := open().Acquire(ctx, key)
					require.NoError(t, err)
					cancel()
					s.next(end, tt.faults...)
					began := time.Now()
					require.NoError(t, do(ctx, e))
					require.Equal(t, tt.took, time.Since(began))
					require.Equal(t, tt.sends, s.count(end))
					if end == release {
						require.Equal(t, lock.Free, s.state(t, key).State)
						return
					}
					require.Equal(t, []byte("receipt"), s.state(t, key).Receipt)
					s.forget(t, key)
				})
			})
		}
	}
}
