package lock_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// settleOn leaves the receipt of token, which bears the token's name, on a node.
func (f fleet) settleOn(t *testing.T, token string, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		ok, err := f[i].server().Settle(t.Context(), key, token, []byte(token), keep)
		require.NoError(t, err)
		require.True(t, ok)
	}
}

// lostAndTaken is what there is when a holder, "lost", has lost its lease and left
// a receipt on some nodes all the same, while the others are of who took over.
func lostAndTaken(t *testing.T, size, receipts int) fleet {
	t.Helper()
	f := newFleet(size)
	f.put(t, takeover("lost", "", 1), seq(receipts)...)
	f.put(t, takeover("taker", "", 2), seq(size)[receipts:]...)
	f.settleOn(t, "lost", seq(receipts)...)
	return f
}

// minorities are the conditions of n nodes of which a majority is up.
func minorities(n int) (all []string) {
	for _, conditions := range subsets(n, "ud") {
		if strings.Count(conditions, "d") <= n/2 {
			all = append(all, conditions)
		}
	}
	return all
}

// The receipt of a holder that had lost its lease is on too few nodes to be the
// answer, while who took over can leave another one; and when that is so, the
// other one is, whichever nodes are down.
func TestQuorumReceiptOfALostHolder(t *testing.T) {
	for size, receipts := range map[int]int{3: 1, 5: 2} {
		for _, conditions := range minorities(size) {
			synctest.Test(t, func(t *testing.T) {
				f := lostAndTaken(t, size, receipts)
				f.be(conditions)
				q := f.quorum(lock.WithRetry(1, time.Second))
				e, err := q.Claim(t.Context(), key, takeover("other", "", 1))
				require.NoError(t, err)
				require.Equal(t, []any{lock.Held, "taker"}, []any{e.State, e.Token}, "with %s", conditions)
				e, err = q.Get(t.Context(), key)
				require.NoError(t, err)
				require.Equal(t, []any{lock.Held, "taker"}, []any{e.State, e.Token}, "with %s", conditions)

				f.heal()
				ok, err := q.Settle(t.Context(), key, "taker", []byte("taker"), keep)
				require.NoError(t, err)
				require.True(t, ok)
				time.Sleep(time.Second)
				f.be(conditions)
				e, err = q.Claim(t.Context(), key, takeover("other 2", "", 1))
				require.NoError(t, err)
				require.Equal(t, []any{lock.Settled, "taker"}, []any{e.State, string(e.Receipt)}, "with %s", conditions)
				time.Sleep(time.Second)
			})
		}
	}
}

// Who took over has vanished too. Its work is of unknown outcome, and it may wake
// up and settle, until another takeover has a majority: that makes the receipt
// which there is the answer.
func TestQuorumReceiptBeforeALaterAttempt(t *testing.T) {
	for _, size := range []int{3, 5} {
		for _, conditions := range minorities(size) {
			synctest.Test(t, func(t *testing.T) {
				f := lostAndTaken(t, size, 1)
				time.Sleep(2 * time.Second)
				q := f.quorum()
				e, err := q.Claim(t.Context(), key, takeover("other", "", 1))
				require.NoError(t, err)
				require.Equal(t, []any{lock.Abandoned, "taker"}, []any{e.State, e.Token}, "its outcome is unknown")

				f.be(conditions)
				e, err = q.Claim(t.Context(), key, takeover("third", "taker", 3))
				if strings.Count(conditions[1:], "u") <= size/2 {
					require.True(t, err != nil || e.State != lock.Settled, "told with %s", conditions)
					f.heal()
					time.Sleep(2 * time.Second)
					return
				}
				if conditions[0] == 'd' { // nobody knows of the receipt
					require.Equal(t, []any{lock.Held, "third"}, []any{e.State, e.Token}, "with %s: %v", conditions, err)
					time.Sleep(time.Second)
					return
				}
				require.NoError(t, err)
				require.Equal(t, []any{lock.Settled, "lost"}, []any{e.State, string(e.Receipt)}, "with %s", conditions)
				time.Sleep(time.Second)
				f.heal()
				ok, err := q.Settle(t.Context(), key, "taker", []byte("taker"), keep)
				require.NoError(t, err)
				require.False(t, ok, "it wakes up too late")
				for _, then := range minorities(size) {
					f.be(then)
					e, err := f.quorum().Claim(t.Context(), key, takeover("other "+then, "", 1))
					require.NoError(t, err)
					require.Equal(t, []any{lock.Settled, "lost"}, []any{e.State, string(e.Receipt)}, "with %s, then %s", conditions, then)
					time.Sleep(time.Second)
				}
			})
		}
	}
}

// A receipt that could not be brought to a majority is not told: who does not
// reach it may run the work again, and give another answer.
func TestQuorumReceiptIsToldWhenAMajorityHasIt(t *testing.T) {
	for name, hinder := range map[string]func(f fleet){
		"nobody else answers":     func(f fleet) { f.be("udd") },
		"it does not get there":   func(f fleet) { f[1].be(refuse, settle); f[2].be(refuse) },
		"nobody hears that it is": func(f fleet) { f[1].be(loseReply, settle); f[2].be(refuse) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(3)
				f.put(t, takeover("dead", "", 1), 0, 1, 2)
				time.Sleep(2 * time.Second)
				f.settleOn(t, "dead", 0)
				hinder(f)
				_, err := f.quorum().Claim(t.Context(), key, takeover("other", "", 1))
				require.Error(t, err)
				time.Sleep(time.Second)
				f.heal()
				e, err := f.quorum().Claim(t.Context(), key, takeover("other 2", "", 1))
				require.NoError(t, err)
				require.Equal(t, lock.Settled, e.State)
				time.Sleep(time.Second)
				require.Equal(t, "settled:dead settled:dead settled:dead", f.states(t))
			})
		})
	}
}

// The same through Lockers that run abandoned work again: the first holder was cut
// off from a majority, lost its lease and settled on the node it still reached.
// Whatever anybody is told after that is what everybody is told.
func TestQuorumLostHolderOfOnce(t *testing.T) {
	for _, conditions := range minorities(3) {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(3)
			away, gone := &cutOff{Store: f[1]}, &cutOff{Store: f[2]}
			paused := lockerOver(t, lock.NewQuorum([]lock.Store{f[0], away, gone}), lock.WithLease(lease), lock.WithBudget(budget),
				lock.WithKeep(keep), lock.WithMaxHold(time.Minute), lock.WithRerunAbandoned(), lock.WithDetached())
			answers := make(chan string, 1)
			go func() {
				receipt, _, err := paused.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) {
					away.cut.Store(true)
					gone.cut.Store(true)
					f[0].be(refuse, claim)
					time.Sleep(2 * lease)
					return []byte("lost"), nil
				})
				if err != nil {
					receipt = nil
				}
				answers <- string(receipt)
			}()
			time.Sleep(lease * 3 / 2)
			taker := f.locker(t, lock.WithRerunAbandoned())
			receipt, _, err := taker.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
				time.Sleep(2 * lease)
				f.be(conditions)
				receipt, replayed, err := f.locker(t, lock.WithRerunAbandoned()).Once(t.Context(), key, print1, done)
				if err == nil {
					t.Errorf("told %q, replayed %t, while another attempt runs", receipt, replayed)
				}
				f.heal()
				return []byte("taken over"), nil
			})
			require.NoError(t, err)
			require.Equal(t, "taken over", string(receipt))
			away.cut.Store(false)
			gone.cut.Store(false)
			require.NotEqual(t, "lost", <-answers, "whoever has lost the lease does not know the answer")
			for _, then := range minorities(3) {
				f.be(then)
				receipt, replayed, err := f.locker(t).Once(t.Context(), key, print1, done)
				require.NoError(t, err)
				require.True(t, replayed)
				require.Equal(t, "taken over", string(receipt), "with %s", then)
				time.Sleep(time.Second)
			}
			f.heal()
			time.Sleep(time.Minute)
		})
	}
}

// cutOff is a node that its holder loses sight of.
type cutOff struct {
	lock.Store
	cut atomic.Bool
}

func (c *cutOff) Renew(ctx context.Context, key string, claim lock.Claim) (bool, error) {
	if c.cut.Load() {
		return false, errEOF
	}
	return c.Store.Renew(ctx, key, claim)
}

func (c *cutOff) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (bool, error) {
	if c.cut.Load() {
		return false, errEOF
	}
	return c.Store.Settle(ctx, key, token, receipt, keep)
}

// Between the answer of a node and the copy, a later attempt has come and gone
// there. The copy must not replace what is left of it.
func TestQuorumCopyReplacesNoLaterAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		f.put(t, takeover("dead", "", 1), 0, 1)
		time.Sleep(2 * time.Second)
		f.settleOn(t, "dead", 0)
		f[1].once(settle, func(_ context.Context, apply func() error) error {
			f[1].restart()
			f.put(t, takeover("later", "", 2), 1)
			time.Sleep(time.Second)
			return apply()
		})
		f[2].be(refuse)
		_, err := f.quorum(lock.WithNodeTimeout(5*time.Second)).Claim(t.Context(), key, takeover("other", "", 1))
		require.ErrorContains(t, err, "a receipt is on too few nodes")
		require.Equal(t, "settled:dead abandoned:later free", f.states(t))
		time.Sleep(time.Second)
	})
}

// A cool-down that a lost holder has left is no reason to fail where somebody
// holds what is left of the nodes: the key is held.
func TestQuorumCoolDownOfALostHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		f.put(t, lock.Claim{Token: "lost", Attempt: 1, Lease: longLease}, 0)
		f.put(t, lock.Claim{Token: "other", Attempt: 1, Lease: longLease}, 1, 2)
		f.settleOn(t, "lost", 0)
		f[2].be(refuse)
		e, err := f.quorum().Claim(t.Context(), key, lock.Claim{Token: "ours", Attempt: 1, Lease: longLease})
		require.NoError(t, err)
		require.Equal(t, []any{lock.Held, "other"}, []any{e.State, e.Token})
		time.Sleep(time.Second)
	})
}
