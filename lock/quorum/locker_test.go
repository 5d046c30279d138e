package quorum_test

import (
	"context"
	"fmt"
	"sync"
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

// Two claims share the nodes with a third. The dead one of the same Locker is returned as the entry in the way, and
// so removed at once.
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
			require.ErrorIs(t, must.Err(l.Acquire(t.Context(), key)), lock.ErrUnknown)
			time.Sleep(3 * time.Second) // less than its lease
			require.Regexp(t, "^held:[^ ]+ held:[^ ]+ held:other held:other free$", f.states(t))
			f.heal()
			began := time.Now()
			e := must.Get(l.Acquire(t.Context(), key))(t)
			require.Less(t, time.Since(began), 10*roundTrip)
			require.NoError(t, e.Release(t.Context()))
			time.Sleep(time.Minute)
		})
	}
}

// Without the factor, a fast clock of a node ends the lease before its holder stops relying on it.
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
				l := fault.Locker(t, f.quorum(tt.opts...), lock.WithLease(lease), lock.WithBudget(budget))
				began := time.Now()
				e := must.Get(l.Acquire(t.Context(), key))(t)
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

// A node that does not answer for a long time must not make the store remember every token.
func TestForgetsReleasedTokens(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		f[2].Every(fault.HangReply)
		q := f.quorum()
		l := fault.Locker(t, q, lock.WithLease(lease), lock.WithBudget(budget))
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

// A release is the majority's, and reaches the others as soon as they answer.
func TestReleaseReachesAllThatLive(t *testing.T) {
	for name, tt := range map[string]struct {
		third []fault.Func
		left  string
	}{
		"request lost": {[]fault.Func{fault.LoseRequest, fault.LoseRequest}, "free"},
		"hangs":        {[]fault.Func{fault.HangRequest, fault.HangRequest}, "free"},
		"always lost":  {[]fault.Func{fault.LoseRequest, fault.LoseRequest, fault.LoseRequest, fault.LoseRequest}, "held:ours"},
		"down":         {[]fault.Func{fault.Refuse, fault.Refuse}, "free"},
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

// A lock of a healthy quorum costs a claim and a release on each node, whichever node is
// the last to answer, and whether or not the work is over by then.
func TestOneReleaseOnEachNode(t *testing.T) {
	const locks = 100
	for name, third := range map[string]time.Duration{"as fast": roundTrip, "slower": 7 * roundTrip} {
		for _, work := range []time.Duration{0, 3 * roundTrip, 20 * roundTrip} {
			fleetCase(t, fmt.Sprintf("%s, %v of work", name, work), 3, func(t *testing.T, f fleet) {
				f[2].Every(fault.Slow(third))
				l := f.locker(t)
				for i := range locks {
					require.NoError(t, l.Do(t.Context(), fmt.Sprint(i), func(context.Context) error {
						time.Sleep(work)
						return nil
					}))
				}
				time.Sleep(time.Minute)
				for i, n := range f {
					require.Equal(t, []int{locks, locks}, []int{n.Count(fault.Claim), n.Count(fault.Release)}, "node %d", i)
					require.Empty(t, f.keys(t))
				}
			})
		}
	}
}

// With one silent node, two claims at once often have one vote each. They claim again although the
// clean-up for the silent node has spent the retry budget.
func TestSplitVotesWithASilentNode(t *testing.T) {
	const pairs = 300
	for name, silence := range map[string]fault.Func{"requests lost": fault.HangRequest, "replies lost": fault.HangReply} {
		fleetCase(t, name, 3, func(t *testing.T, f fleet) {
			f[2].Every(silence)
			a, b := f.locker(t, lock.WithBudget(600*time.Millisecond)), f.locker(t, lock.WithBudget(600*time.Millisecond))
			for i := range f {
				if i < 2 {
					f[i].Every(jitter)
				}
			}
			var held atomic.Int32
			var all sync.WaitGroup
			for i := range pairs {
				time.Sleep(10 * time.Millisecond) // two locks
				all.Go(func() {
					var granted atomic.Bool
					var pair sync.WaitGroup
					for _, l := range []*lock.Locker{a, b} {
						pair.Go(func() {
							e, err := l.Acquire(t.Context(), fmt.Sprint(i))
							if err == nil {
								granted.Store(true)
								time.Sleep(20 * time.Millisecond)
								_ = e.Release(t.Context())
							}
						})
					}
					pair.Wait()
					if granted.Load() {
						held.Add(1)
					}
				})
			}
			all.Wait()
			require.EqualValues(t, pairs, held.Load(), "pairs of which one was granted")
			f.heal()
			time.Sleep(time.Minute)
		})
	}
}
