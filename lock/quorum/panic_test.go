package quorum_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
	"github.com/httplatch/httplatch/lock/quorum"
)

// A quorum calls its nodes on its own goroutines: a node that panics counts as a
// node that does not answer.
func TestPanicsOfANodeAreUnknownOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []lock.Store
		for i := range 3 {
			s := fault.New()
			nodes = append(nodes, panicking{s, s.Server().(lock.Inspector), i == 0}) //nolint:forcetypeassert // the memory store is one
			if i == 0 {
				s.Every(func(context.Context, func() error) error { panic("a hook's") }, fault.Claim, fault.Renew, fault.Settle, fault.Release, fault.Get)
			}
		}
		q := quorum.New(nodes)
		c := lock.Claim{Token: "a", Lease: lease}
		e := must.Entry(t)(q.Claim(t.Context(), key, c))
		require.Equal(t, "a", e.Token)
		must.Yes(t)(q.Renew(t.Context(), key, c))
		must.Entry(t)(q.Get(t.Context(), key))
		require.NoError(t, q.Check(t.Context()))
		must.Yes(t)(q.Forget(t.Context(), key, "a"))
		synctest.Wait()
	})
}
