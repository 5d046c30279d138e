package quorum_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/quorum"
)

// A claim was granted, and a node that has not answered it gets it after the
// release. The Locker cleans up there, and treats its token as dead meanwhile.
func TestLockerCleansUpAfterAMinority(t *testing.T) {
	long := []lock.Option{lock.WithLease(longLease), lock.WithMaxHold(2 * longLease)}
	for name, refused := range map[string]bool{"granted and released": false, "refused": true} {
		fleetCase(t, name, 3, func(t *testing.T, f fleet) {
			var grants atomic.Int32
			l := f.locker(t, append(long, lock.WithObserver(func(_ context.Context, e lock.Event) {
				if e.Kind == lock.EventClaimed {
					grants.Add(1)
				}
			}))...)
			if refused {
				f.put(t, lock.Claim{Token: "other", Lease: time.Second}, 0, 1)
			}
			f[2].Next(fault.Claim, fault.Late(4*time.Second))
			e, err := l.Acquire(t.Context(), key)
			if refused {
				require.ErrorIs(t, err, lock.ErrHeld)
			} else {
				require.NoError(t, err)
				require.NoError(t, e.Release(t.Context()))
			}
			time.Sleep(4*time.Second + 10*time.Millisecond)
			require.Regexp(t, "free free held", f.states(t), "it has landed")
			f[1].Every(fault.Refuse)
			// 0 is free, 1 is down, and 2 has our own claim.
			e, err = l.Acquire(t.Context(), key)
			require.NoError(t, err, "a process is never refused by itself")
			require.NoError(t, e.Release(t.Context()))
			f.heal()
			time.Sleep(2 * time.Second)
			require.Equal(t, "free free free", f.states(t))
			require.Positive(t, grants.Load())
		})
	}
}

// Two other claims share the nodes with a claim. One of them is a dead claim of
// the same Locker: it is returned as the entry in the way, and so removed at
// once.
func TestNamesWhatItsLockerCanRemove(t *testing.T) {
	for range 20 { // the answers come in any order
		withFleet(t, 5, func(t *testing.T, f fleet) {
			l := f.locker(t, lock.WithLease(longLease), lock.WithMaxHold(longLease))
			f.put(t, lock.Claim{Token: "other", Attempt: 1, Lease: longLease}, 2, 3)
			for i, n := range f {
				if i < 2 {
					n.Every(fault.HangReply, fault.Claim)
					n.Every(fault.HangRequest, fault.Release)
				} else {
					n.Every(fault.Refuse)
				}
			}
			_, err := l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrUnknown)
			time.Sleep(3 * time.Second) // less than its lease
			require.Regexp(t, "^held:[^ ]+ held:[^ ]+ held:other held:other free$", f.states(t))
			f.heal()
			began := time.Now()
			e, err := l.Acquire(t.Context(), key)
			require.NoError(t, err)
			require.Less(t, time.Since(began), 10*roundTrip)
			require.NoError(t, e.Release(t.Context()))
			time.Sleep(time.Minute)
		})
	}
}

// Without the factor, a node whose clock is fast ends the lease before its holder
// stops relying on it.
func TestDriftFactorEndsTheBelief(t *testing.T) {
	for name, tt := range map[string]struct {
		opts  []quorum.Option
		valid time.Duration
	}{
		"default": {nil, lease - lease/100 - 2*time.Millisecond},
		"wide":    {[]quorum.Option{quorum.WithDriftFactor(0.2)}, lease - lease/5 - 2*time.Millisecond},
	} {
		for _, renewals := range []int{0, 1} {
			fleetCase(t, name, 3, func(t *testing.T, f fleet) {
				l := lockerOver(t, f.quorum(tt.opts...), lock.WithLease(lease), lock.WithBudget(budget))
				began := time.Now()
				e, err := l.Acquire(t.Context(), key)
				require.NoError(t, err)
				if renewals > 0 {
					time.Sleep(lease / 2)
					began = began.Add(lease / 3) // when it was sent
				}
				for _, n := range f {
					n.Every(fault.Refuse, fault.Renew)
				}
				<-e.Context().Done()
				require.Equal(t, tt.valid, time.Since(began))
				require.ErrorIs(t, e.Release(t.Context()), lock.ErrLost)
				time.Sleep(time.Second)
			})
		}
	}
}

// A node that does not answer for a long time must not make the store remember
// every token of this time.
func TestForgetsReleasedTokens(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		f[2].Every(fault.HangReply)
		q := f.quorum()
		l := lockerOver(t, q, lock.WithLease(lease), lock.WithBudget(budget))
		for range 1000 {
			require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		}
		require.Positive(t, quorum.TokensInFlight(q))
		time.Sleep(2 * time.Second)
		require.LessOrEqual(t, quorum.TokensInFlight(q), 256, "those that are being cleaned up")
		f.heal()
		time.Sleep(time.Minute)
		require.Zero(t, quorum.TokensInFlight(q))
	})
}

// A lease is no use if a majority answers only when it is over.
func TestGrantedTooLate(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		for _, n := range f {
			n.Every(fault.Slow(590*time.Millisecond), fault.Claim)
		}
		q := f.quorum(quorum.WithNodeTimeout(time.Minute), quorum.WithDriftFactor(0.02))
		l := lockerOver(t, q, lock.WithLease(600*time.Millisecond), lock.WithBudget(300*time.Millisecond))
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		time.Sleep(time.Minute)
		require.Equal(t, "free free free", f.states(t))
	})
}

// A release is the majority's, and reaches the others as soon as they answer.
func TestReleaseReachesAllThatLive(t *testing.T) {
	for name, tt := range map[string]struct {
		third []fault.Func
		left  string
	}{
		"reply lost":     {[]fault.Func{fault.LoseReply}, "free"},
		"request lost":   {[]fault.Func{fault.LoseRequest, fault.LoseRequest}, "free"},
		"hangs":          {[]fault.Func{fault.HangRequest, fault.HangRequest}, "free"},
		"always lost":    {[]fault.Func{fault.LoseRequest, fault.LoseRequest, fault.LoseRequest, fault.LoseRequest}, "held:ours"},
		"down":           {[]fault.Func{fault.Refuse, fault.Refuse}, "free"},
		"comes too late": {[]fault.Func{fault.Late(time.Second)}, "free"},
	} {
		fleetCase(t, name, 3, func(t *testing.T, f fleet) {
			f.put(t, lock.Claim{Token: "ours", Lease: longLease}, 0, 1, 2)
			f[2].Next(fault.Release, tt.third...)
			began := time.Now()
			must.Yes(t)(f.quorum().Release(t.Context(), key, lock.Claim{Token: "ours"}))
			require.Equal(t, roundTrip, time.Since(began))
			time.Sleep(time.Second)
			require.Equal(t, "free free "+tt.left, f.states(t))
		})
	}
}

func TestRelease(t *testing.T) {
	for name, tt := range map[string]struct {
		conditions string
		on         []int
		ok, fails  bool
	}{
		"all":                        {"uuu", []int{0, 1, 2}, true, false},
		"majority":                   {"uuu", []int{0, 2}, true, false},
		"a minority had it":          {"uuu", []int{2}, false, false},
		"no node had it":             {"uuu", nil, false, false},
		"one is down":                {"udu", []int{0, 2}, true, false},
		"one of the two is down":     {"uud", []int{0, 2}, false, true},
		"one of the two is silent":   {"uul", []int{0, 2}, false, true},
		"two are down":               {"udd", []int{0, 1, 2}, false, true},
		"no node had it, one silent": {"uul", nil, false, false},
	} {
		fleetCase(t, name, 3, func(t *testing.T, f fleet) {
			f.put(t, lock.Claim{Token: "ours", Lease: longLease}, tt.on...)
			f.be(tt.conditions)
			ok, err := f.quorum().Release(t.Context(), key, lock.Claim{Token: "ours"})
			require.Equal(t, tt.ok, ok)
			require.Equal(t, tt.fails, err != nil, "%v", err)
			require.NotErrorIs(t, err, lock.ErrNotApplied)
			if err == nil { // a "no" has the replies of all nodes, too
				require.NotContains(t, f.states(t), "held")
			}
			time.Sleep(time.Second)
		})
	}
}

// A caller that removes a dead claim claims again at once. A "no" of the majority, which
// never had it, must not come before the node that has.
func TestReleaseHearsTheMinority(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		f.put(t, lock.Claim{Token: "ours", Lease: longLease}, 1)
		f[1].Every(after(20*time.Millisecond), fault.Release)
		must.No(t)(f.quorum().Release(t.Context(), key, lock.Claim{Token: "ours"}))
		require.Equal(t, "free free free", f.states(t))
	})
}

// A Locker that closes has the answer of a majority, and waits for the calls to the other nodes.
func TestCloseLeavesNothing(t *testing.T) {
	withFleet(t, 5, func(t *testing.T, f fleet) {
		f[3].Every(fault.Slow(40 * time.Millisecond))
		f[4].Every(fault.HangReply)
		l := f.locker(t)
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, e.Settle(t.Context(), nil, keep))
		f.heal()
		require.NoError(t, l.Close(t.Context()))
		// The bubble ends here, and it is an error if a goroutine does not.
	})
}

// A caller that waits on a quorum gets the key when it is released.
func TestWait(t *testing.T) {
	withFleet(t, 5, func(t *testing.T, f fleet) {
		f.be("uudlu")
		holder, waiter := f.locker(t), f.locker(t, lock.WithWait(10*time.Second))
		e, err := holder.Acquire(t.Context(), key)
		require.NoError(t, err)
		released := time.Now().Add(5 * time.Second)
		time.AfterFunc(5*time.Second, func() { _ = e.Release(context.Background()) })
		require.NoError(t, waiter.Do(t.Context(), key, func(context.Context) error {
			require.Less(t, time.Since(released), time.Second)
			return nil
		}))
		f.heal()
		time.Sleep(10 * time.Second)
	})
}
