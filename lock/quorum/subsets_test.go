package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
)

// subsets returns all strings of n letters.
func subsets(n int, letters string) []string {
	all := []string{""}
	for range n {
		var longer []string
		for _, s := range all {
			for _, l := range letters {
				longer = append(longer, s+string(l))
			}
		}
		all = longer
	}
	return all
}

func everySubset(t *testing.T, check func(t *testing.T, f fleet, conditions string, majority bool)) {
	t.Helper()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for _, conditions := range subsets(n, "udsl") {
				synctest.Test(t, func(t *testing.T) {
					defer func() {
						if t.Failed() {
							t.Logf("with the nodes %s", conditions)
						}
					}()
					f := newFleet(n)
					f.be(conditions)
					check(t, f, conditions, strings.Count(conditions, string(up)) > n/2)
				})
			}
		})
	}
}

// Acquired exactly when a majority answered in time; then as fast as the
// majority, for any behaviour of the other nodes. Otherwise no node keeps an
// entry.
func TestEverySubset(t *testing.T) {
	t.Parallel()
	everySubset(t, func(t *testing.T, f fleet, conditions string, majority bool) {
		t.Helper()
		q := f.quorum()
		began := time.Now()
		e, err := q.Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease})
		took := time.Since(began)
		if majority {
			require.NoError(t, err)
			require.Equal(t, lock.Held, e.State)
			require.Equal(t, "ours", e.Token)
			require.Equal(t, roundTrip, took, "a slow minority costs nothing")
			time.Sleep(time.Second)
			f.heal()
			must.Yes(t)(q.Release(t.Context(), key, lock.Claim{Token: "ours"}))
		} else {
			require.Error(t, err)
			require.Equal(t, !strings.ContainsAny(conditions, "sl"), isNotApplied(err), "%v", err)
			require.LessOrEqual(t, took, 2*nodeTimeout)
		}
		time.Sleep(time.Second)
		require.NotContains(t, f.states(t), "ours")
	})
}

// The same through a Locker, which claims again within its budget and cleans
// up after unanswered calls. The nodes stay as they are for a while after it has
// given up.
func TestEverySubsetUnderALocker(t *testing.T) {
	t.Parallel()
	everySubset(t, func(t *testing.T, f fleet, conditions string, majority bool) {
		t.Helper()
		l := lock.New(f.quorum(), lock.WithLogger(quiet), lock.WithLease(longLease), lock.WithMaxHold(2*longLease),
			lock.WithBudget(budget))
		began := time.Now()
		e, err := l.Acquire(t.Context(), key)
		took := time.Since(began)
		if majority {
			require.NoError(t, err)
			require.Equal(t, roundTrip, took)
			require.NoError(t, e.Release(t.Context()))
		} else {
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.Equal(t, strings.ContainsAny(conditions, "sl"), isUnknown(err), "%v", err)
			require.LessOrEqual(t, took, budget)
		}
		time.Sleep(time.Second)
		f.heal()
		time.Sleep(30 * time.Second)
		require.NotContains(t, f.states(t), "held")
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		require.NoError(t, l.Close(t.Context()))
	})
}

func isNotApplied(err error) bool { return errors.Is(err, lock.ErrNotApplied) }
func isUnknown(err error) bool    { return errors.Is(err, lock.ErrUnknown) }
