package quorum_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/quorum"
)

// A node that has restarted empty has the entry again after the next renewal, so
// that within another lease another one may do the same.
func TestRenewalBringsTheEntryBack(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		l, other := f.locker(t), f.locker(t)
		require.NoError(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			for i := range 9 {
				f[i%3].Serve(memstore.New())
				time.Sleep(lease * 2 / 3)
				require.ErrorIs(t, must.Err(other.Acquire(ctx, key)), lock.ErrHeld)
				require.NotContains(t, f.states(t), "free", "after restart %d", i)
			}
			return ctx.Err()
		}))
		time.Sleep(time.Second)
		require.Equal(t, "free free free", f.states(t))
	})
}

// The must-fail twin, and the hole that is documented: two nodes of three that
// forget within a lease make two holders. The first is notified at its renewal.
func TestTwoRestartsMakeTwoHolders(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		first := must.Get(f.locker(t).Acquire(t.Context(), key))(t)
		f[0].Serve(memstore.New())
		f[1].Serve(memstore.New())
		second, err := f.locker(t).Acquire(t.Context(), key)
		require.NoError(t, err, "a majority has never heard of the first")
		require.NoError(t, first.Context().Err(), "two holders")
		<-first.Context().Done()
		require.ErrorIs(t, context.Cause(first.Context()), lock.ErrLost)
		require.NoError(t, second.Context().Err())
		require.ErrorIs(t, first.Release(t.Context()), lock.ErrLost)
		require.NoError(t, second.Release(t.Context()))
		time.Sleep(time.Second)
	})
}

// The majority decides on a renewal, a settlement and a release. Where it does not answer, the outcome
// is unknown. The other nodes get a call as soon as they answer.
func TestMajorityDecides(t *testing.T) {
	c := lock.Claim{Token: "ours", Attempt: 3, Fingerprint: print1, Owner: "me", Lease: longLease}
	renew := func(ctx context.Context, q *quorum.Store) (bool, error) { return q.Renew(ctx, key, c) }
	settle := func(ctx context.Context, q *quorum.Store) (bool, error) { return q.Settle(ctx, key, c, nil, keep) }
	release := func(ctx context.Context, q *quorum.Store) (bool, error) { return q.Release(ctx, key, c) }
	for name, tt := range map[string]struct {
		call       func(ctx context.Context, q *quorum.Store) (bool, error)
		conditions string
		ours       []int
		want       string
		after      string
	}{
		"renewed, one has forgotten":           {renew, "uuu", []int{0, 2}, "yes", "held:ours held:ours held:ours"},
		"renewed, one has forgotten, of 5":     {renew, "uuudd", []int{0, 1, 2}, "yes", "held:ours held:ours held:ours free free"},
		"renewed, one is down":                 {renew, "udu", []int{0, 2}, "yes", "held:ours free held:ours"},
		"renewed, two have forgotten":          {renew, "uuu", []int{1}, "no", "free held:ours free"},
		"renewed, one forgot, one is down":     {renew, "uud", []int{0, 2}, "unknown", "held:ours free held:ours"},
		"renewed, two are down":                {renew, "dud", []int{0, 1, 2}, "unknown", "held:ours held:ours held:ours"},
		"renewed, all are down":                {renew, "ddd", []int{0, 1, 2}, "not applied", "held:ours held:ours held:ours"},
		"renewed, minority, the rest silent":   {renew, "uddll", []int{0, 3}, "unknown", "held:ours free free held:ours free"},
		"settled, one lacks the claim":         {settle, "uuu", []int{0, 2}, "yes", "settled:ours free settled:ours"},
		"settled, one is down":                 {settle, "uud", []int{0, 1, 2}, "yes", "settled:ours settled:ours held:ours"},
		"settled, one is down for a bit":       {settle, "uuD", []int{0, 1, 2}, "yes", "settled:ours settled:ours settled:ours"},
		"settled, two lack the claim":          {settle, "uuu", []int{1}, "no", "free settled:ours free"},
		"settled, one lacks it, one is down":   {settle, "uud", []int{0, 2}, "unknown", "settled:ours free held:ours"},
		"settled, two are silent":              {settle, "ull", []int{0, 1, 2}, "unknown", "settled:ours settled:ours settled:ours"},
		"released, one is down":                {release, "udu", []int{0, 2}, "yes", "free free free"},
		"released, a minority had it":          {release, "uuu", []int{2}, "no", "free free free"},
		"released, no node had it, one silent": {release, "uul", nil, "no", "free free free"},
		"released, one of the two is down":     {release, "uud", []int{0, 2}, "unknown", "free free held:ours"},
		"released, one of the two is silent":   {release, "uul", []int{0, 2}, "unknown", "free free free"},
	} {
		fleetCase(t, name, len(tt.conditions), func(t *testing.T, f fleet) {
			f.put(t, c, tt.ours...)
			f.be(strings.ReplaceAll(tt.conditions, "D", "u"))
			if strings.HasSuffix(tt.conditions, "D") {
				f[2].Next(fault.Settle, fault.Refuse, fault.LoseRequest)
			}
			ok, err := tt.call(t.Context(), f.quorum())
			require.Equal(t, tt.want == "yes", ok)
			require.Equal(t, tt.want == "not applied", isNotApplied(err), "%v", err)
			require.Equal(t, tt.want == "yes" || tt.want == "no", err == nil, "%v", err)
			time.Sleep(time.Second)
			require.Equal(t, tt.after, f.states(t))
			for _, n := range f {
				if e := must.Entry(t)(n.Server().Get(t.Context(), key)); e.State == lock.Held {
					require.Equal(t, []any{c.Attempt, c.Fingerprint, c.Owner}, []any{e.Attempt, e.Fingerprint, e.Owner}, "created as it was")
				}
			}
		})
	}
}

// A renewal goes on to bring the entry back. A release that overtakes it must not leave the entry there.
func TestReleaseOvertakesTheBringingBack(t *testing.T) {
	for _, f3 := range []fault.Func{fault.Slow(30 * time.Millisecond), after(30 * time.Millisecond)} {
		withFleet(t, 3, func(t *testing.T, f fleet) {
			c := lock.Claim{Token: "ours", Lease: longLease}
			f.put(t, c, 0, 1)
			f[2].Every(f3, fault.Claim)
			q := f.quorum()
			must.Yes(t)(q.Renew(t.Context(), key, c))
			time.Sleep(10 * time.Millisecond) // the claim on the third is under way
			must.Yes(t)(q.Release(t.Context(), key, lock.Claim{Token: "ours"}))
			time.Sleep(time.Second)
			require.Equal(t, 1, f[2].Count(fault.Claim))
			require.Equal(t, "free free free", f.states(t))
		})
	}
}

// after applies a call d after it came, and then answers.
func after(d time.Duration) fault.Func {
	return func(ctx context.Context, apply func() error) error {
		fault.Sleep(ctx, d)
		return apply()
	}
}

// Any two majorities meet: a cool-down that a majority has refuses whichever nodes
// are down then, until it is over, and asking does not prolong it.
func TestCoolDownWhicheverNodesAreDown(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, first := range subsets(n, "ud") {
			for _, then := range subsets(n, "ud") {
				if strings.Count(first, "d") > n/2 || strings.Count(then, "d") > n/2 {
					continue
				}
				withFleet(t, n, func(t *testing.T, f fleet) {
					f.be(first)
					began := time.Now()
					e, err := f.locker(t).Acquire(t.Context(), key)
					require.NoError(t, err)
					require.NoError(t, e.Settle(t.Context(), nil, time.Minute))
					f.be(then)
					l := f.locker(t)
					for time.Since(began) < 59*time.Second {
						_, err = l.Acquire(t.Context(), key)
						require.Error(t, err, "granted with %s, after %s", then, first)
						time.Sleep(10 * time.Second)
					}
					time.Sleep(2 * time.Second)
					require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
					time.Sleep(time.Second)
				})
			}
		}
	}
}

// A cool-down on a majority is reported as a cool-down, to any caller that asks first.
func TestCoolDownIsReported(t *testing.T) {
	for slowest := range 3 {
		withFleet(t, 3, func(t *testing.T, f fleet) {
			f.put(t, lock.Claim{Token: "ours", Lease: longLease}, 0, 1, 2)
			f[slowest].Next(fault.Settle, after(10*time.Millisecond))
			q := f.quorum()
			must.Yes(t)(q.Settle(t.Context(), key, lock.Claim{Token: "ours"}, nil, keep))
			for _, token := range []string{"ours", "other"} {
				e := must.Entry(t)(q.Claim(t.Context(), key, lock.Claim{Token: token, Lease: longLease}))
				require.Equal(t, []any{lock.Settled, "ours"}, []any{e.State, e.Token})
			}
			time.Sleep(time.Second)
			require.GreaterOrEqual(t, strings.Count(f.states(t), "settled:ours"), 2)
		})
	}
}

// A claim lands on a node after its token was settled: it is not left held there.
func TestClaimLandsAfterItsSettle(t *testing.T) {
	for name, third := range map[string][]fault.Func{
		"the cool-down is there already": {after(46 * time.Millisecond)},
		"it came before the claim":       nil,
		"it did not get there":           {fault.Refuse, fault.Refuse, fault.Refuse},
	} {
		fleetCase(t, name, 3, func(t *testing.T, f fleet) {
			q := f.quorum()
			f[2].Next(fault.Claim, after(45*time.Millisecond))
			f[2].Next(fault.Settle, third...)
			must.Entry(t)(q.Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease}))
			must.Yes(t)(q.Settle(t.Context(), key, lock.Claim{Token: "ours"}, nil, keep))
			time.Sleep(time.Second)
			require.Regexp(t, "^settled:ours settled:ours (settled:ours|free)$", f.states(t))
		})
	}
}

// A cool-down that a holder has left which had lost its lease, on a node, is no reason
// to name it where another token has the majority.
func TestCoolDownOfALostHolder(t *testing.T) {
	withFleet(t, 3, func(t *testing.T, f fleet) {
		f.put(t, lock.Claim{Token: "lost", Lease: longLease}, 0)
		f.put(t, lock.Claim{Token: "other", Lease: longLease}, 1, 2)
		must.Get(f[0].Server().Settle(t.Context(), key, lock.Claim{Token: "lost"}, nil, keep))(t)
		e := must.Entry(t)(f.quorum().Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease}))
		require.Equal(t, []any{lock.Held, "other"}, []any{e.State, e.Token})
		time.Sleep(time.Second)
	})
}
