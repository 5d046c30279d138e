package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// Claims that each reach another node first have a node each, and none the
// majority. They give back what they have and try again, not together.
func TestQuorumSplitVoteIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		var mu sync.Mutex
		var winners []string
		var all sync.WaitGroup
		for i := range f {
			stores := f.stores()
			for j := range stores {
				stores[j] = &remote{stores[j], time.Duration((i+j)%3) * 5 * time.Millisecond}
			}
			q := lock.NewQuorum(stores, lock.WithRetry(100, 200*time.Millisecond)) // they may meet again
			all.Go(func() {
				token := fmt.Sprint("t", i)
				e, err := q.Claim(t.Context(), key, lock.Claim{Token: token, Lease: longLease})
				if err != nil || e.State != lock.Held {
					t.Errorf("%s: %v, %v", token, e, err)
				}
				if e.Token == token {
					mu.Lock()
					defer mu.Unlock()
					winners = append(winners, token)
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		require.Equal(t, "free free free", f.states(t), "they had a node each, and have given it back")
		all.Wait()
		require.Len(t, winners, 1)
		time.Sleep(time.Second)
		states := f.states(t)
		require.GreaterOrEqual(t, strings.Count(states, "held:"+winners[0]), 2, states)
		require.LessOrEqual(t, strings.Count(states, "free"), 1, "the others have nothing: %s", states)
	})
}

// remote is a store that is some way off.
type remote struct {
	lock.Store
	distance time.Duration
}

func (r *remote) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	sleep(ctx, r.distance)
	return r.Store.Claim(ctx, key, c)
}

func TestQuorumRetries(t *testing.T) {
	// One node is ours, one is somebody else's, and one is down: nobody can tell
	// whether that somebody has the majority.
	for name, tt := range map[string]struct {
		tries      int
		within     time.Duration // of the caller
		least      time.Duration
		most       time.Duration
		claims     int
		conditions string
	}{
		"three":                {3, time.Minute, 200 * time.Millisecond, 450 * time.Millisecond, 3, "uud"},
		"one":                  {1, time.Minute, 0, 10 * time.Millisecond, 1, "uud"},
		"no time for a second": {3, 150 * time.Millisecond, 0, 10 * time.Millisecond, 1, "uud"},
		"third is deaf":        {2, time.Minute, 100 * time.Millisecond, 400 * time.Millisecond, 2, "uul"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(3)
				f.put(t, lock.Claim{Token: "other", Lease: longLease}, 1)
				f.be(tt.conditions)
				ctx, cancel := context.WithTimeout(t.Context(), tt.within)
				defer cancel()
				began := time.Now()
				e, err := f.quorum(lock.WithRetry(tt.tries, 200*time.Millisecond)).Claim(ctx, key, lock.Claim{Token: "ours", Lease: longLease})
				took := time.Since(began)
				require.NoError(t, err)
				require.Equal(t, "other", e.Token, "the one that is known to be in the way")
				require.GreaterOrEqual(t, took, tt.least)
				require.LessOrEqual(t, took, tt.most)
				require.LessOrEqual(t, f[0].count(claim), tt.claims)
				time.Sleep(time.Second)
				f.heal()
				require.Equal(t, "free", f.states(t)[:4], "given back")
			})
		})
	}
}

// What an earlier try has left on a node that did not confirm its release is in
// doubt, whatever becomes of the later ones.
func TestQuorumDoubtOfAnEarlierTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		f.put(t, lock.Claim{Token: "other", Lease: longLease}, 1)
		f[0].be(loseRequest, release)
		f[1].once(claim, slow(roundTrip), refuse)
		f[2].be(refuse)
		_, err := f.quorum().Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease})
		require.ErrorContains(t, err, "0 of 3 nodes answered")
		require.Equal(t, "held:ours held:other free", f.states(t))
		require.NotErrorIs(t, err, lock.ErrNotApplied)
		time.Sleep(time.Second)
	})
}

// A claim that is refused by a majority is not tried again, and not delayed by
// those that have not answered.
func TestQuorumRefusalIsTheMajoritys(t *testing.T) {
	for _, conditions := range []string{"uuu", "uus", "uud", "uul"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(3)
			f.put(t, lock.Claim{Token: "other", Owner: "somebody", Lease: longLease}, 0, 1)
			f.be(conditions)
			began := time.Now()
			e, err := f.quorum().Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease})
			require.NoError(t, err)
			require.Equal(t, roundTrip, time.Since(began))
			require.Equal(t, []any{lock.Held, "other", "somebody"}, []any{e.State, e.Token, e.Owner})
			time.Sleep(time.Second)
			require.Equal(t, "held:other held:other free", f.states(t), "with %s", conditions)
		})
	}
}

// An answer that comes when the node's time is over is none, whichever way the
// scheduler has it.
func TestQuorumAnswerAtTheTimeout(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(3)
			f[0].be(slow(time.Minute), claim)
			f[2].be(slow(time.Minute), claim)
			_, err := f.quorum().Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease})
			require.ErrorContains(t, err, "stores[2]: answered too late")
			time.Sleep(time.Second)
			require.Equal(t, "free free free", f.states(t))
		})
	}
}

// The same claim may be sent again while the first is still under way, as a
// Locker does when a third of its budget has passed. Two that each take back what
// they have would take back each other's.
func TestQuorumSameClaimTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		f.put(t, lock.Claim{Token: "other", Lease: 250 * time.Millisecond}, 1)
		f[2].be(refuse)
		time.AfterFunc(250*time.Millisecond, f.heal)
		q := f.quorum(lock.WithRetry(100, 200*time.Millisecond))
		c := lock.Claim{Token: "ours", Fingerprint: []byte("f"), Lease: longLease}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 40 * time.Millisecond)
				e, err := q.Claim(t.Context(), key, c)
				if err != nil || e.State != lock.Held || e.Token != "ours" {
					t.Errorf("claim %d: %v, %v", i, e, err)
				}
				clear(e.Fingerprint) // is everybody's own
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		require.Equal(t, "held:ours held:ours held:ours", f.states(t))
	})
}

// A claim that was taken back on a node which did not confirm that, and is then
// sent again, must not count the vote of that node: it may be taken away yet.
func TestQuorumDoesNotCountAVoteThatMayBeTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		q := f.quorum()
		c := lock.Claim{Token: "ours", Lease: longLease}
		f.be("udd")
		f[0].once(release, late(2*time.Second), late(2*time.Second), late(2*time.Second))
		_, err := q.Claim(t.Context(), key, c)
		require.Error(t, err)
		require.NotErrorIs(t, err, lock.ErrNotApplied, "the first node may still have it")

		f.be("uud")
		_, err = q.Claim(t.Context(), key, c)
		require.ErrorContains(t, err, "stores[0]: lock: not applied: an earlier release of the token is still on its way there")
		f.heal()
		e, err := q.Claim(t.Context(), key, c)
		require.NoError(t, err)
		require.Equal(t, lock.Held, e.State, "the two others are a majority")
		f[2].be(refuse, renew)
		_, err = q.Renew(t.Context(), key, c)
		require.ErrorContains(t, err, "1 of 3 nodes said yes, and 0 no", "nor does its word count")
		f.heal()
		ok, err := q.Renew(t.Context(), key, c)
		require.NoError(t, err)
		require.True(t, ok)
		time.Sleep(3 * time.Second)
		require.Equal(t, "free held:ours held:ours", f.states(t), "it was taken away")
		ok, err = q.Renew(t.Context(), key, c)
		require.NoError(t, err)
		require.True(t, ok)
		time.Sleep(time.Second)
		require.Equal(t, "free held:ours held:ours", f.states(t), "and not brought back, while more may come")

		time.Sleep(10 * time.Second) // nothing can land any more
		_, err = q.Claim(t.Context(), key, c)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, "held:ours held:ours held:ours", f.states(t))
	})
}

// A release that overtakes its claim, as that of a Locker does which has given up:
// what the claim has had, it has no more.
func TestQuorumReleaseOvertakesTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		f[1].be(after(20*time.Millisecond), claim)
		f[2].be(refuse, claim)
		q := f.quorum()
		time.AfterFunc(10*time.Millisecond, func() { _, _ = q.Release(t.Context(), key, "ours") })
		_, err := q.Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease})
		require.ErrorContains(t, err, "released while it was on its way")
		time.Sleep(time.Second)
		require.Equal(t, "free free free", f.states(t))
	})
}

// Calls on nodes go on after the call on the quorum has returned, and by then its
// slices are its caller's again.
func TestQuorumKeepsCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		f[2].be(after(20*time.Millisecond), claim, settle)
		q := f.quorum()
		c := lock.Claim{Token: "ours", Fingerprint: []byte("print"), Lease: longLease}
		e, err := q.Claim(t.Context(), key, c)
		require.NoError(t, err)
		clear(c.Fingerprint)
		clear(e.Fingerprint)
		time.Sleep(time.Second)
		receipt := []byte("done")
		_, err = q.Settle(t.Context(), key, "ours", receipt, keep)
		require.NoError(t, err)
		clear(receipt)
		time.Sleep(time.Second)
		for _, n := range f {
			e, err := n.server().Get(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, []any{"print", "done"}, []any{string(e.Fingerprint), string(e.Receipt)})
		}
	})
}

// The same with the caller's own release: it was confirmed by a majority, and is
// still on its way to the third.
func TestQuorumClaimAgainWhileTheReleaseIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		c := lock.Claim{Token: "ours", Lease: longLease}
		f.put(t, c, 0, 1, 2)
		f[2].once(release, after(30*time.Millisecond))
		q := f.quorum(lock.WithRetry(1, time.Second))
		ok, err := q.Release(t.Context(), key, "ours")
		require.NoError(t, err)
		require.True(t, ok)
		f.put(t, lock.Claim{Token: "other", Lease: longLease}, 0)
		e, err := q.Claim(t.Context(), key, c)
		require.NoError(t, err)
		require.Equal(t, "other", e.Token, "of three nodes, one is somebody else's and one will not stay ours")
		time.Sleep(time.Second)
		require.Equal(t, "held:other free free", f.states(t))
	})
}

// Releases that are just about to be answered are waited for, if the others are
// too few.
func TestQuorumClaimWaitsForReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		q := f.quorum()
		c := lock.Claim{Token: "ours", Lease: longLease}
		f[0].once(claim, slow(30*time.Millisecond)) // and then is found to be released
		f[0].once(release, slow(roundTrip), slow(5*time.Millisecond))
		f[2].once(release, after(45*time.Millisecond))
		began := time.Now()
		_, err := q.Claim(t.Context(), key, c)
		require.NoError(t, err)
		ok, err := q.Release(t.Context(), key, "ours")
		require.NoError(t, err)
		require.True(t, ok)
		time.Sleep(32*time.Millisecond - time.Since(began))
		e, err := q.Claim(t.Context(), key, c)
		require.NoError(t, err)
		require.Equal(t, lock.Held, e.State)
		require.Equal(t, 36*time.Millisecond, time.Since(began))
		time.Sleep(time.Second)
		require.Equal(t, "held:ours held:ours free", f.states(t))
	})
}

// What a caller has left behind is undone, and what was not sent yet is not sent.
func TestQuorumCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		sent := false
		f[1].be(hangReply, claim)
		f[2].be(func(ctx context.Context, apply func() error) error {
			sleep(ctx, 20*time.Millisecond) // as a dial may take
			if ctx.Err() != nil {
				return fmt.Errorf("%w: %w", lock.ErrNotApplied, ctx.Err())
			}
			sent = true
			return apply()
		}, claim)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := f.quorum().Claim(ctx, key, lock.Claim{Token: "ours", Lease: longLease})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, lock.ErrNotApplied)
		require.Equal(t, 10*time.Millisecond, time.Since(began))
		time.Sleep(time.Second)
		require.Equal(t, "free free free", f.states(t))
		require.False(t, sent)
	})
}

// What was heard when the caller's time was over is no refusal: the node that had
// not answered could have made the majority.
func TestQuorumCallerLeavesBeforeTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		f.put(t, lock.Claim{Token: "other", Lease: longLease}, 1)
		f[2].be(slow(30 * time.Millisecond))
		q := f.quorum()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		for range 2 { // the second shares what the first has begun, as long as it can
			all.Go(func() {
				_, err := q.Claim(ctx, key, lock.Claim{Token: "ours", Lease: longLease})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("claim: %v", err)
				}
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		require.Equal(t, "free held:other free", f.states(t))
	})
}

// A client library that does not even return at its time-out holds nobody up, and
// Close waits for it.
func TestQuorumStuckNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		l := f.locker(t)
		f[1].be(stuck(2*time.Second), claim)
		began := time.Now()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, roundTrip, time.Since(began))
		require.NoError(t, e.Release(t.Context()))
		require.Equal(t, 2*roundTrip, time.Since(began))
		require.NoError(t, l.Close(t.Context()))
		require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
		require.Equal(t, "free free free", f.states(t), "what landed after the release is gone too")
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		f[1].be(stuck(time.Minute))
		f[2].be(stuck(time.Minute))
		began := time.Now()
		_, err := f.quorum().Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease})
		require.ErrorContains(t, err, "stores[1]: no answer within 50ms; stores[2]: no answer within 50ms")
		require.Less(t, time.Since(began), 2*nodeTimeout)
		time.Sleep(5 * time.Minute)
		require.Equal(t, "free free free", f.states(t))
	})
}
