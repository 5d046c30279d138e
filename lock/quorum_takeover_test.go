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

func takeover(token, replaces string, attempt int) lock.Claim {
	return lock.Claim{Token: token, Replaces: replaces, Attempt: attempt, Fingerprint: print1, Lease: time.Second, Linger: keep}
}

// However the nodes answer, one of several takeovers has all nodes, and the
// others none.
func TestQuorumTakeoverRace(t *testing.T) {
	for _, n := range []int{3, 5} {
		for spread := range 10 {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(n)
				f.put(t, takeover("dead", "", 1), seq(n)...)
				time.Sleep(2 * time.Second)
				var mu sync.Mutex
				var winners []string
				var all sync.WaitGroup
				for i := range 4 {
					stores := f.stores()
					for j := range stores {
						stores[j] = &remote{stores[j], time.Duration((i*7+j*3)*spread%11) * time.Millisecond}
					}
					token := fmt.Sprint("t", i)
					all.Go(func() {
						e, err := lock.NewQuorum(stores).Claim(t.Context(), key, takeover(token, "dead", 2))
						if err != nil || e.State != lock.Held || e.Attempt != 2 {
							t.Errorf("%s: %v, %v", token, e, err)
						}
						mu.Lock()
						defer mu.Unlock()
						winners = append(winners, e.Token)
					})
				}
				all.Wait()
				for _, w := range winners {
					require.Equal(t, winners[0], w, "everybody names the same one")
				}
				require.Equal(t, strings.TrimSpace(strings.Repeat("held:"+winners[0]+" ", n)), f.states(t))
				time.Sleep(time.Second)
			})
		}
	}
}

func seq(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// A takeover that gets no majority leaves what it has to lapse. The next one
// counts it.
func TestQuorumFailedTakeoverIsNotForgotten(t *testing.T) {
	for name, conditions := range map[string]string{"others down": "udd", "others deaf": "ull", "first down": "dul", "others slow": "uss"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(3)
				f.put(t, takeover("dead", "", 1), 0, 1, 2)
				time.Sleep(2 * time.Second)
				f.be(conditions)
				_, err := f.quorum().Claim(t.Context(), key, takeover("second", "dead", 2))
				require.Error(t, err)
				require.NotErrorIs(t, err, lock.ErrNotApplied)
				time.Sleep(5 * time.Second)
				require.NotContains(t, f.states(t), "free", "somebody has forgotten that there was an attempt")
				f.heal()
				attempts := attemptsUntilGranted(t, f.quorum())
				require.GreaterOrEqual(t, attempts, 2)
				if strings.Count(f.states(t), "second") > 1 {
					require.Equal(t, 3, attempts)
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// attemptsUntilGranted claims as a Locker does, and returns the number of the
// attempt that was granted.
func attemptsUntilGranted(t *testing.T, q lock.Store) int {
	t.Helper()
	c := takeover("last", "", 1)
	for i := range 4 {
		c.Token = fmt.Sprint("last ", i)
		e, err := q.Claim(t.Context(), key, c)
		require.NoError(t, err)
		if e.State == lock.Held && e.Token == c.Token {
			return c.Attempt
		}
		require.Equal(t, lock.Abandoned, e.State, "%v", e)
		c.Replaces, c.Attempt = e.Token, e.Attempt+1
	}
	t.Fatal("not granted")
	return 0
}

// Takeovers that did not see each other have lapsed with a part of the nodes
// each. No token has a majority then, and the key must not stay so until it is
// forgotten.
func TestQuorumTakesOverFromSeveral(t *testing.T) {
	for name, tt := range map[string]struct {
		claims     map[int]lock.Claim
		conditions string
		attempt    int
	}{
		"one each":              {map[int]lock.Claim{0: takeover("a", "", 1), 1: takeover("b", "", 2), 2: takeover("c", "", 2)}, "uuu", 3},
		"one each, one down":    {map[int]lock.Claim{0: takeover("a", "", 2), 1: takeover("b", "", 2)}, "uud", 3},
		"two and two, one down": {map[int]lock.Claim{0: takeover("a", "", 2), 1: takeover("b", "", 2), 2: takeover("b", "", 2), 3: takeover("a", "", 2)}, "uuuud", 3},
		"the first has a later": {map[int]lock.Claim{0: takeover("a", "", 5), 1: takeover("b", "", 2), 2: takeover("b", "", 2)}, "uuu", 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(len(tt.conditions))
				for i, c := range tt.claims {
					f.put(t, c, i)
				}
				time.Sleep(2 * time.Second)
				f.be(tt.conditions)
				require.Equal(t, tt.attempt, attemptsUntilGranted(t, f.quorum()))
				time.Sleep(10 * time.Millisecond)
				if !strings.Contains(name, "later") { // which a majority has forgotten, but not its number
					require.NotContains(t, f.states(t), "abandoned")
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// Only what is older, and of the same work, is taken over along with the rest.
func TestQuorumTakesOverNothingElse(t *testing.T) {
	for name, other := range map[string]lock.Claim{
		"as late":             takeover("other", "", 2),
		"another request's":   {Token: "other", Attempt: 1, Fingerprint: []byte("request 2"), Lease: time.Second, Linger: keep},
		"held by a third":     {Token: "other", Attempt: 1, Fingerprint: print1, Lease: longLease},
		"a majority's, older": takeover("other", "", 1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(3)
				f.put(t, takeover("dead", "", 1), 0)
				f.put(t, other, 1)
				if strings.Contains(name, "majority") {
					f.put(t, other, 2)
				} else {
					f[2].be(refuse)
				}
				time.Sleep(2 * time.Second)
				e, err := f.quorum(lock.WithRetry(1, time.Second)).Claim(t.Context(), key, takeover("ours", "dead", 2))
				require.NoError(t, err)
				require.Equal(t, "other", e.Token)
				time.Sleep(time.Second)
				require.Contains(t, f.states(t), ":other")
			})
		})
	}
}

// A node on which the lease of whoever vanished lasts a little longer is no reason
// to name that one a holder.
func TestQuorumTakeoverOfAnotherThanIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		f.put(t, takeover("dead", "", 1), 1, 2)
		time.Sleep(500 * time.Millisecond)
		f.put(t, takeover("dead", "", 1), 0)
		time.Sleep(600 * time.Millisecond)
		require.Equal(t, "held:dead abandoned:dead abandoned:dead", f.states(t))
		e, err := f.quorum().Claim(t.Context(), key, takeover("ours", "seen before", 1))
		require.NoError(t, err)
		require.Equal(t, []any{lock.Abandoned, "dead"}, []any{e.State, e.Token})
		time.Sleep(time.Second)
	})
}

// A node that holds what is no rival does not keep others from the takeover.
func TestQuorumTakeoverPassesOver(t *testing.T) {
	for name, on0 := range map[string]func(t *testing.T, f fleet){
		"down":           func(_ *testing.T, f fleet) { f[0].be(refuse) },
		"deaf":           func(_ *testing.T, f fleet) { f[0].be(loseReply) },
		"stuck":          func(_ *testing.T, f fleet) { f[0].be(stuck(time.Second)) },
		"its lease runs": func(t *testing.T, f fleet) { t.Helper(); f[0].restart(); f.put(t, takeover("dead", "", 1), 0) },
		"held by a stray": func(t *testing.T, f fleet) {
			t.Helper()
			f[0].restart()
			f.put(t, lock.Claim{Token: "stray", Attempt: 1, Lease: longLease}, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(3)
				f.put(t, takeover("dead", "", 1), 0, 1, 2)
				time.Sleep(2 * time.Second)
				on0(t, f)
				e, err := f.quorum().Claim(t.Context(), key, takeover("ours", "dead", 2))
				require.NoError(t, err)
				require.Equal(t, []any{lock.Held, "ours"}, []any{e.State, e.Token})
				time.Sleep(2 * time.Second)
			})
		})
	}
}

// Through Lockers: every attempt has a number of its own, whatever becomes of the
// nodes meanwhile, and the last one's answer is everybody's.
func TestQuorumAttemptsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		var attempts []int
		for i, conditions := range []string{"uuu", "duu", "uud", "udu", "uuu"} {
			f.be(conditions)
			l := f.locker(t, lock.WithRerunAbandoned())
			_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				attempts = append(attempts, lock.Attempt(ctx))
				if i < 4 {
					return nil, errors.New("fails: the first is free again, the others are not forgotten")
				}
				return []byte("done"), nil
			})
			require.Equal(t, i < 4, err != nil)
			if i == 0 { // as if the process had died instead
				f.heal()
				abandon(t, f)
			}
			time.Sleep(2 * lease)
		}
		require.Equal(t, []int{1, 2, 3, 4, 5}, attempts)
		receipt, replayed, err := f.locker(t).Once(t.Context(), key, print1, nil)
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, "done", string(receipt))
	})
}
