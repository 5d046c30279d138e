package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/quorum"
)

// Claims that each reach another node first have a node each, and none the
// majority. They give their nodes back and try again, at different times.
func TestSplitVoteIsTriedAgain(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		var mu sync.Mutex
		var winners []*lock.Lease
		var all sync.WaitGroup
		for i := range f {
			stores := f.stores()
			for j := range stores {
				stores[j] = &remote{stores[j], time.Duration((i+j)%3) * 5 * time.Millisecond}
			}
			l := fault.Locker(t, quorum.New(stores), lock.WithLease(longLease), lock.WithMaxHold(longLease), lock.WithBudget(budget))
			all.Go(func() {
				e, err := l.Acquire(t.Context(), key)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					winners = append(winners, e)
				} else if !errors.Is(err, lock.ErrHeld) {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		all.Wait()
		require.Len(t, winners, 1)
		time.Sleep(time.Second)
		e := must.Entry(t)(f[1].Server().Get(t.Context(), key))
		states := f.states(t)
		require.GreaterOrEqual(t, strings.Count(states, "held:"+e.Token), 2, states)
		require.LessOrEqual(t, strings.Count(states, "free"), 1, "the others have nothing: %s", states)
		require.NoError(t, winners[0].Release(t.Context()))
		time.Sleep(time.Second)
		require.Equal(t, "free free free", f.states(t))
	})
}

// One node has our token, one has another token, and one does not answer: the other token
// may have the majority, or not. The taken node is given back at once.
func TestSplitVote(t *testing.T) {
	for name, tt := range map[string]struct {
		conditions string
		release    fault.Func // of the taken node
		certain    bool
		left       string
	}{
		"third is down":           {"uud", fault.Slow(roundTrip), true, "free"},
		"third is silent":         {"uul", fault.Slow(roundTrip), false, "free"},
		"the release is not sure": {"uud", fault.LoseRequest, false, "held:ours"}, // for its Locker to clean up
	} {
		fleetCase(t, name, 3, func(t *testing.T, f fleet) {
			f.put(t, lock.Claim{Token: "other", Lease: longLease}, 1)
			f.be(tt.conditions)
			f[0].Next(fault.Release, tt.release, tt.release, tt.release)
			_, err := f.quorum().Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease})
			require.ErrorContains(t, err, "none of which has a majority")
			require.Equal(t, tt.certain, isNotApplied(err), "%v", err)
			if tt.certain {
				require.Equal(t, "free held:other free", f.states(t))
			}
			time.Sleep(time.Second)
			require.Equal(t, tt.left+" held:other free", f.states(t))
		})
	}
}

// The Locker tries it again, until its budget is over, and leaves nothing.
func TestSplitVoteEndsWithTheBudget(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		f.put(t, lock.Claim{Token: "other", Lease: longLease}, 1)
		f[2].Every(fault.Refuse)
		l := f.locker(t)
		began := time.Now()
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrUnknown)
		require.LessOrEqual(t, time.Since(began), budget)
		require.Greater(t, f[0].Count(fault.Claim), 3)
		require.Equal(t, "free held:other free", f.states(t))

		time.AfterFunc(20*time.Millisecond, f.heal)
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err, "the third node decides, as soon as it answers")
		require.NoError(t, e.Release(t.Context()))
		time.Sleep(time.Second)
		require.Equal(t, "free held:other free", f.states(t))
	})
}

// A claim that is refused by a majority is not tried again, and not delayed by
// nodes that have not answered.
func TestRefusalIsTheMajoritys(t *testing.T) {
	for _, conditions := range []string{"uuu", "uus", "uud", "uul"} {
		withFleet(t, 3, func(t *testing.T, f fleet) {
			f.put(t, lock.Claim{Token: "other", Owner: "another", Lease: longLease}, 0, 1)
			f.be(conditions)
			began := time.Now()
			e := must.Entry(t)(f.quorum().Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease}))
			require.Equal(t, roundTrip, time.Since(began))
			require.Equal(t, []any{lock.Held, "other", "another"}, []any{e.State, e.Token, e.Owner})
			time.Sleep(time.Second)
			require.Equal(t, "held:other held:other free", f.states(t), "with %s", conditions)
		})
	}
}

// An answer that comes when the node's time is over is none, whichever way the
// scheduler has it.
func TestAnswerAtTheTimeout(t *testing.T) {
	for range 20 {
		withFleet(t, 3, func(t *testing.T, f fleet) {
			f[0].Every(fault.Slow(time.Minute), fault.Claim)
			f[2].Every(fault.Slow(time.Minute), fault.Claim)
			_, err := f.quorum().Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease})
			require.ErrorContains(t, err, "stores[2]: answered too late")
			time.Sleep(time.Second)
			require.Equal(t, "free free free", f.states(t))
		})
	}
}

// A Locker sends a claim again while the first is in flight. If both took back their nodes, each would take back the
// nodes of the other.
func TestSameClaimTwiceAtOnce(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		f.put(t, lock.Claim{Token: "other", Lease: 250 * time.Millisecond}, 1)
		f[2].Every(fault.Refuse)
		time.AfterFunc(250*time.Millisecond, f.heal)
		q := f.quorum()
		c := lock.Claim{Token: "ours", Fingerprint: []byte("f"), Lease: longLease}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 40 * time.Millisecond)
				e, err := claimAgain(t.Context(), q, key, c)
				assert.NoError(t, err)
				assert.Equal(t, []any{lock.Held, "ours"}, []any{e.State, e.Token}, "claim %d", i)
				clear(e.Fingerprint) // each caller has its own
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		require.Equal(t, "held:ours held:ours held:ours", f.states(t))
	})
}

// A claim is sent again after a node did not confirm its release. The vote of this node does not count, because the
// release may still remove it.
func TestDoesNotCountAVoteThatMayBeTakenBack(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		q := f.quorum()
		c := lock.Claim{Token: "ours", Lease: longLease}
		f.be("udd")
		f[0].Next(fault.Release, fault.Late(2*time.Second), fault.Late(2*time.Second), fault.Late(2*time.Second))
		_, err := q.Claim(t.Context(), key, c)
		require.Error(t, err)
		require.NotErrorIs(t, err, lock.ErrNotApplied, "the first node may still have it")

		f.be("uud")
		_, err = q.Claim(t.Context(), key, c)
		require.ErrorContains(t, err, "stores[0]: lock: not applied: an earlier release of the token is still in flight there")
		f.heal()
		require.Equal(t, lock.Held, must.Entry(t)(q.Claim(t.Context(), key, c)).State, "the two others are a majority")
		f[2].Every(fault.Refuse, fault.Renew)
		_, err = q.Renew(t.Context(), key, c)
		require.ErrorContains(t, err, "1 of 3 nodes said yes, and 0 no", "nor does its word count")
		f.heal()
		must.Yes(t)(q.Renew(t.Context(), key, c))
		time.Sleep(3 * time.Second)
		require.Equal(t, "free held:ours held:ours", f.states(t), "it was taken away")
		must.Yes(t)(q.Renew(t.Context(), key, c))
		time.Sleep(time.Second)
		require.Equal(t, "free held:ours held:ours", f.states(t), "and not brought back, while more may come")

		time.Sleep(10 * time.Second) // after this time nothing can land
		must.Entry(t)(q.Claim(t.Context(), key, c))
		time.Sleep(time.Second)
		require.Equal(t, "held:ours held:ours held:ours", f.states(t))
	})
}

// A release overtakes its claim, as when a Locker has given up: the claim keeps none of
// its nodes.
func TestReleaseOvertakesTheClaim(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		f[1].Every(after(20*time.Millisecond), fault.Claim)
		f[2].Every(fault.Refuse, fault.Claim)
		q := f.quorum()
		time.AfterFunc(10*time.Millisecond, func() { _, _ = q.Release(t.Context(), key, lock.Claim{Token: "ours"}) })
		_, err := q.Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease})
		require.ErrorContains(t, err, "released while it was in flight")
		require.NotErrorIs(t, err, lock.ErrNotApplied, "the releases are on their way, and may be lost")
		time.Sleep(time.Second)
		require.Equal(t, "free free free", f.states(t))
	})
}

// The calls of a caller that has left are undone, and its unsent calls are not sent.
func TestCallerLeaves(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		sent := false
		f[1].Every(fault.HangReply, fault.Claim)
		f[2].Every(func(ctx context.Context, apply func() error) error {
			fault.Sleep(ctx, 20*time.Millisecond) // as a dial may take
			if ctx.Err() != nil {
				return fmt.Errorf("%w: %w", lock.ErrNotApplied, ctx.Err())
			}
			sent = true
			return apply()
		}, fault.Claim)
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

// The answers before the end of the caller's time are not a refusal: the node
// that had not answered could have made the majority.
func TestCallerLeavesBeforeTheLastAnswer(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		f.put(t, lock.Claim{Token: "other", Lease: longLease}, 1)
		f[2].Every(fault.Slow(30 * time.Millisecond))
		q := f.quorum()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		for range 2 { // the second claim shares the calls of the first, as long as it can
			all.Go(func() {
				_, err := q.Claim(ctx, key, lock.Claim{Token: "ours", Lease: longLease})
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		require.Equal(t, "free held:other free", f.states(t))
	})
}

// A client library that does not even return at its time-out holds no caller up, and
// Close waits for it.
func TestStuckNode(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		l := f.locker(t)
		f[1].Every(fault.Stuck(2*time.Second), fault.Claim)
		began := time.Now()
		e := must.Get(l.Acquire(t.Context(), key))(t)
		require.Equal(t, roundTrip, time.Since(began))
		require.NoError(t, e.Release(t.Context()))
		require.Equal(t, 2*roundTrip, time.Since(began))
		require.NoError(t, l.Close(t.Context()))
		require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
		require.Equal(t, "free free free", f.states(t), "what landed after the release is gone too")
	})
	withFleet(t, 3, func(t *testing.T, f fleet) {
		f[1].Every(fault.Stuck(time.Minute))
		f[2].Every(fault.Stuck(time.Minute))
		began := time.Now()
		_, err := f.quorum().Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease})
		require.ErrorContains(t, err, "stores[1]: no answer within 50ms; stores[2]: no answer within 50ms")
		require.Less(t, time.Since(began), 2*nodeTimeout)
		time.Sleep(5 * time.Minute)
		require.Equal(t, "free free free", f.states(t))
	})
}

// Calls on nodes go on after the call on the quorum has returned, when its slices
// belong to its caller again.
func TestKeepsCopies(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		f[2].Every(after(20*time.Millisecond), fault.Claim)
		q := f.quorum()
		c := lock.Claim{Token: "ours", Fingerprint: []byte("print"), Lease: longLease}
		e := must.Entry(t)(q.Claim(t.Context(), key, c))
		clear(c.Fingerprint)
		clear(e.Fingerprint)
		time.Sleep(time.Second)
		for _, n := range f {
			require.Equal(t, "print", string(must.Entry(t)(n.Server().Get(t.Context(), key)).Fingerprint))
		}
	})
}
