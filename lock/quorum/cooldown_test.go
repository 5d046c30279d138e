package quorum_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/quorum"
	"github.com/httplatch/httplatch/lock/sealed"
)

func TestSettle(t *testing.T) {
	for name, tt := range map[string]struct {
		conditions string
		on         []int
		ok, fails  bool
		after      string
	}{
		"all":                    {"uuu", []int{0, 1, 2}, true, false, "settled settled settled"},
		"one lacks the claim":    {"uuu", []int{0, 2}, true, false, "settled free settled"},
		"one is down":            {"uud", []int{0, 1, 2}, true, false, "settled settled held"},
		"one is silent":          {"uul", []int{0, 1, 2}, true, false, "settled settled settled"},
		"one is down for a bit":  {"uuD", []int{0, 1, 2}, true, false, "settled settled settled"},
		"two lack the claim":     {"uuu", []int{1}, false, false, "free settled free"},
		"no node has it":         {"uuu", nil, false, false, "free free free"},
		"one lacks it, one down": {"uud", []int{0, 2}, false, true, "settled free held"},
		"two are down":           {"udd", []int{0, 1, 2}, false, true, "settled held held"},
		"two are silent":         {"ull", []int{0, 1, 2}, false, true, "settled settled settled"},
	} {
		fleetCase(t, name, len(tt.conditions), func(t *testing.T, f fleet) {
			f.put(t, lock.Claim{Token: "ours", Attempt: 2, Fingerprint: print1, Owner: "me", Lease: longLease}, tt.on...)
			f.be(strings.ReplaceAll(tt.conditions, "D", "u"))
			if strings.Contains(tt.conditions, "D") {
				f[2].Next(fault.Settle, fault.Refuse, fault.LoseRequest)
			}
			ok, err := f.quorum().Settle(t.Context(), key, lock.Claim{Token: "ours"}, nil, keep)
			require.Equal(t, tt.ok, ok)
			require.Equal(t, tt.fails, err != nil, "%v", err)
			time.Sleep(time.Second)
			require.Equal(t, tt.after, strings.ReplaceAll(f.states(t), ":ours", ""))
		})
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
						if err == nil {
							t.Fatalf("granted with %s, after %s", then, first)
						}
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
		_, err := f[0].Server().Settle(t.Context(), key, lock.Claim{Token: "lost"}, nil, keep)
		require.NoError(t, err)
		e := must.Entry(t)(f.quorum().Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease}))
		require.Equal(t, []any{lock.Held, "other"}, []any{e.State, e.Token})
		time.Sleep(time.Second)
	})
}

// A sealed store is a node like any other: it seals cool-downs, too.
func TestOfSealedStores(t *testing.T) {
	t.Parallel()
	block, err := aes.NewCipher(make([]byte, 32))
	require.NoError(t, err)
	aead, err := cipher.NewGCMWithRandomNonce(block)
	require.NoError(t, err)
	var nodes []lock.Store
	for _, s := range memories(3) {
		nodes = append(nodes, sealed.New(s, aead))
	}
	l := lockerOver(t, quorum.New(nodes))
	e, err := l.Acquire(t.Context(), key)
	require.NoError(t, err)
	_, err = l.Acquire(t.Context(), key)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, e.Settle(t.Context(), nil, keep))
	_, err = l.Acquire(t.Context(), key)
	require.ErrorIs(t, err, lock.ErrSettled)
}
