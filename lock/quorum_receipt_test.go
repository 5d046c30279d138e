package lock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

var onceKey = storedKey(key)

func done(context.Context) ([]byte, error) { return []byte("done"), nil }

// Any two majorities meet: whichever nodes were down when the work was done, it
// is replayed when others are down instead.
func TestQuorumReceiptWhicheverNodesAreDown(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, first := range subsets(n, "ud") {
			for _, then := range subsets(n, "ud") {
				if strings.Count(first, "d") > n/2 || strings.Count(then, "d") > n/2 {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(n)
					f.be(first)
					receipt, replayed, err := f.locker(t).Once(t.Context(), key, print1, done)
					require.NoError(t, err)
					require.False(t, replayed)
					require.Equal(t, "done", string(receipt))
					time.Sleep(time.Minute)
					f.be(then)
					receipt, replayed, err = f.locker(t).Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
						t.Errorf("run again with %s, after %s", then, first)
						return nil, nil
					})
					require.NoError(t, err)
					require.True(t, replayed)
					require.Equal(t, "done", string(receipt))
					time.Sleep(time.Second)
					require.NotContains(t, f.statesOf(t, onceKey), "held")
				})
			}
		}
	}
}

// A settle reached one node, and its process died. Whoever hears of that node
// replays it, takes back what it took, and brings the receipt to the others.
func TestQuorumReceiptOfASingleNode(t *testing.T) {
	for name, conditions := range map[string]string{"first": "uss", "last": "ssu", "and it is the slowest": "ssU", "and one is down": "usd"} {
		t.Run(name, func(t *testing.T) {
			for rerun, opts := range map[string][]lock.Option{"refuse": nil, "rerun": {lock.WithRerunAbandoned()}} {
				t.Run(rerun, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := newFleet(3)
						abandon(t, f)
						for i, c := range strings.ToLower(conditions) {
							if condition(c) == up {
								ok, err := f[i].server().Settle(t.Context(), onceKey, "dead", []byte("done"), keep)
								require.NoError(t, err)
								require.True(t, ok)
							}
							if conditions[i] == 'U' {
								f[i].be(slow(40 * time.Millisecond))
							}
							if condition(c) == down {
								f[i].be(refuse)
							}
						}
						receipt, replayed, err := f.locker(t, opts...).Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
							t.Error("run again")
							return nil, nil
						})
						require.NoError(t, err)
						require.True(t, replayed)
						require.Equal(t, "done", string(receipt))
						time.Sleep(time.Second)
						require.NotContains(t, f.statesOf(t, onceKey), "held")
						if !strings.Contains(conditions, "d") {
							require.Equal(t, "settled:dead settled:dead settled:dead", f.statesOf(t, onceKey))
						}
					})
				})
			}
		})
	}
}

// abandon leaves on all nodes what a process that died in its work leaves.
func abandon(t *testing.T, f fleet) {
	t.Helper()
	for _, n := range f {
		_, err := n.server().Claim(t.Context(), onceKey, lock.Claim{
			Token: "dead", Attempt: 1, Fingerprint: print1, Owner: "process 1", Lease: time.Second, Linger: keep,
		})
		require.NoError(t, err)
	}
	time.Sleep(2 * time.Second)
}

// The receipt is only heard of when nodes have been taken over already.
func TestQuorumTakeoverMeetsAReceipt(t *testing.T) {
	for _, n := range []int{3, 5} {
		for holder := range n {
			t.Run(fmt.Sprint(holder, " of ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(n)
					abandon(t, f)
					_, err := f[holder].server().Settle(t.Context(), onceKey, "dead", []byte("done"), keep)
					require.NoError(t, err)
					f[holder].once(claim, refuse) // not heard of by the claim that finds the key abandoned
					l := f.locker(t, lock.WithRerunAbandoned())
					receipt, replayed, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
						t.Error("run again")
						return nil, nil
					})
					require.NoError(t, err)
					require.True(t, replayed)
					require.Equal(t, "done", string(receipt))
					time.Sleep(time.Second)
					require.Equal(t, strings.TrimSpace(strings.Repeat("settled:dead ", n)), f.statesOf(t, onceKey))
					e, err := f[(holder+1)%n].server().Get(t.Context(), onceKey)
					require.NoError(t, err)
					require.Equal(t, []any{2, print1, "process 1"}, []any{e.Attempt, e.Fingerprint, e.Owner}, "with the takeover's number")
				})
			})
		}
	}
}

// While a takeover is undone, the nodes that had remembered the attempt become
// free one after the other, and not the next if one does not confirm, also when the
// claim is sent again. Somebody who does not reach the receipt must not find a
// majority free.
func TestQuorumTakeoverIsUndoneOneNodeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		f.put(t, takeover("dead", "", 1), 0, 1, 2)
		time.Sleep(2 * time.Second)
		_, err := f[2].server().Settle(t.Context(), key, "dead", []byte("done"), keep)
		require.NoError(t, err)
		for _, n := range f[:2] {
			n.be(loseReply, release) // released, and nobody hears of it
			n.be(refuse, settle)     // nor does the receipt get there
		}
		q := f.quorum()
		ours := takeover("ours", "dead", 2)
		ours.Lease = longLease
		for range 3 {
			_, err = q.Claim(t.Context(), key, ours)
			require.ErrorContains(t, err, "a receipt is on too few nodes")
			require.NotErrorIs(t, err, lock.ErrNotApplied)
			require.Equal(t, "free held:ours settled:dead", f.states(t))
		}
		f.heal()
		e, err := q.Claim(t.Context(), key, ours)
		require.NoError(t, err)
		require.Equal(t, lock.Settled, e.State)
		time.Sleep(time.Second)
		require.Equal(t, "settled:dead settled:dead settled:dead", f.states(t))
	})
}

func TestQuorumSettle(t *testing.T) {
	for name, tt := range map[string]struct {
		conditions string
		on         []int
		ok, fails  bool
		after      string
	}{
		"all":                       {"uuu", []int{0, 1, 2}, true, false, "settled settled settled"},
		"one lacks the claim":       {"uuu", []int{0, 2}, true, false, "settled settled settled"},
		"one is down":               {"uud", []int{0, 1, 2}, true, false, "settled settled held"},
		"one is deaf":               {"uul", []int{0, 1, 2}, true, false, "settled settled settled"},
		"two lack the claim":        {"uuu", []int{1}, false, false, "free settled free"},
		"nobody has it":             {"uuu", nil, false, false, "free free free"},
		"one lacks it, one down":    {"uud", []int{0, 2}, false, true, "settled free held"},
		"two are down":              {"udd", []int{0, 1, 2}, false, true, "settled held held"},
		"two are deaf":              {"ull", []int{0, 1, 2}, false, true, "settled settled settled"},
		"two of five lack it":       {"uuuuu", []int{0, 2, 4}, true, false, "settled settled settled settled settled"},
		"one lacks it, one cut off": {"uuuud", []int{0, 2, 3}, true, false, "settled settled settled settled free"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(len(tt.conditions))
				f.put(t, lock.Claim{Token: "ours", Attempt: 2, Fingerprint: print1, Owner: "me", Lease: longLease}, tt.on...)
				f.be(tt.conditions)
				receipt := []byte("done")
				ok, err := f.quorum().Settle(t.Context(), key, "ours", receipt, keep)
				clear(receipt)
				require.Equal(t, tt.ok, ok)
				require.Equal(t, tt.fails, err != nil, "%v", err)
				time.Sleep(time.Second)
				require.Equal(t, tt.after, strings.ReplaceAll(f.states(t), ":ours", ""))
				for _, n := range f {
					if e, err := n.server().Get(t.Context(), key); err == nil && e.State == lock.Settled {
						require.Equal(t, []any{2, print1, "me", "done"}, []any{e.Attempt, e.Fingerprint, e.Owner, string(e.Receipt)})
						require.LessOrEqual(t, e.Left, keep-time.Second+roundTrip, "no copy ends later than the first")
						require.Greater(t, e.Left, keep-2*time.Second)
					}
				}
			})
		})
	}
}

// A claim lands on a node after its token was settled: nothing is left held there
// that a later settle, or a renewal, could find.
func TestQuorumClaimLandsAfterItsSettle(t *testing.T) {
	const landing = 45 * time.Millisecond
	for name, tt := range map[string]struct {
		kept  time.Duration
		third []fault // of settles there
		want  string
	}{
		"the receipt is there already":  {keep, nil, "settled:ours"},
		"the receipt did not get there": {keep, []fault{after(20 * time.Millisecond), refuse}, "settled:ours"},
		"the receipt is nearly over":    {40 * time.Millisecond, nil, "free"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(3)
				q := f.quorum()
				f[2].once(claim, after(landing))
				f[2].once(settle, tt.third...)
				_, err := q.Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease})
				require.NoError(t, err)
				ok, err := q.Settle(t.Context(), key, "ours", nil, tt.kept)
				require.NoError(t, err)
				require.True(t, ok)
				time.Sleep(time.Second)
				require.True(t, strings.HasSuffix(f.states(t), " "+tt.want), f.states(t))
			})
		})
	}
}

// Copies that claims make of a receipt end no later than it, or the next claims
// would copy those, and a user's cool-down would never end.
func TestQuorumReceiptIsNotKeptAliveByAsking(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const kept = 2 * time.Second
			f := newFleet(3)
			f.put(t, lock.Claim{Token: "first", Lease: longLease}, 0, 1)
			for _, n := range f[:2] {
				_, err := n.server().Settle(t.Context(), key, "first", nil, kept)
				require.NoError(t, err)
			}
			began := time.Now()
			stores := f.stores()
			if hidden {
				for i := range stores {
					stores[i] = timeless{stores[i]}
				}
			}
			q := lock.NewQuorum(stores)
			for i := 0; ; i++ {
				token := fmt.Sprint("claim ", i)
				e, err := q.Claim(t.Context(), key, lock.Claim{Token: token, Lease: time.Minute})
				require.NoError(t, err)
				if e.State == lock.Held && e.Token == token {
					break
				}
				require.Equal(t, "first", e.Token)
				require.Less(t, time.Since(began), 2*kept, "it never ends")
				sleep(t.Context(), time.Millisecond)
				if time.Since(began) > kept/2 && time.Since(began) < kept*3/4 {
					require.Equal(t, "settled:first settled:first settled:first", f.states(t))
				}
			}
			require.InDelta(t, kept, time.Since(began), float64(100*time.Millisecond))
			time.Sleep(time.Second)
		})
	}
}

// timeless does not tell with a claim how long a receipt is kept, as a store need
// not.
type timeless struct{ lock.Store }

func (s timeless) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	e.Left = 0
	return e, err
}

// A settle has reached one node so far, or its process has died over it. The
// others, where the same token is still held, are no reason to refuse.
func TestQuorumReceiptOfWhoStillHoldsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		f.put(t, lock.Claim{Token: "first", Attempt: 1, Lease: longLease}, 0, 1, 2)
		_, err := f[0].server().Settle(t.Context(), key, "first", []byte("done"), keep)
		require.NoError(t, err)
		f[1].be(slow(5 * time.Millisecond))
		f[2].be(slow(5 * time.Millisecond))
		e, err := f.quorum().Claim(t.Context(), key, lock.Claim{Token: "other", Lease: longLease})
		require.NoError(t, err)
		require.Equal(t, []any{lock.Settled, "done"}, []any{e.State, string(e.Receipt)})
		time.Sleep(time.Second)
		require.Equal(t, "settled:first settled:first settled:first", f.states(t))
	})
}

// Two receipts, because two holders that had lost their leases each reached some
// node: everybody gets the same one, whichever answers first.
func TestQuorumTwoReceipts(t *testing.T) {
	for name, tt := range map[string]struct {
		receipts [][2]any // token and attempt, by node
		want     string
	}{
		"the majority's":     {[][2]any{{"a", 2}, {"b", 1}, {"b", 1}}, "b"},
		"the larger part's":  {[][2]any{{"a", 1}, {"b", 1}, {"", 0}, {"b", 1}, {"", 0}}, "b"},
		"the later attempt":  {[][2]any{{"b", 2}, {"a", 1}, {"", 0}}, "b"},
		"the same for all":   {[][2]any{{"a", 1}, {"", 0}, {"b", 1}}, "b"},
		"of three, the last": {[][2]any{{"c", 3}, {"b", 2}, {"a", 1}}, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			for slowest := range tt.receipts {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(len(tt.receipts))
					for i, r := range tt.receipts {
						if token := r[0].(string); token != "" {
							f.put(t, lock.Claim{Token: token, Attempt: r[1].(int), Lease: longLease}, i)
							_, err := f[i].server().Settle(t.Context(), key, token, []byte(token), keep)
							require.NoError(t, err)
						}
					}
					f[slowest].be(slow(20 * time.Millisecond))
					q := f.quorum()
					for range 3 {
						e, err := q.Get(t.Context(), key)
						require.NoError(t, err)
						require.Equal(t, []any{lock.Settled, tt.want}, []any{e.State, string(e.Receipt)})
						e, err = q.Claim(t.Context(), key, lock.Claim{Token: "other", Lease: longLease})
						require.NoError(t, err)
						require.Equal(t, []any{lock.Settled, tt.want}, []any{e.State, string(e.Receipt)})
						time.Sleep(time.Second)
					}
				})
			}
		})
	}
}
