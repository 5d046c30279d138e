package mysqlstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/lock"
)

// A fenced claim is a transaction: if it fails before its COMMIT was sent, it has certainly no
// effect. The twin's COMMIT gets no answer.
func TestClaimThatWasNotCommitted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		struck  string
		certain bool
	}{
		"its key is not read":        {"WHERE lock_key IN", true},
		"its fence is not drawn":     {"_fence` VALUES", true},
		"its fence is not written":   {"SET fence", true},
		"its COMMIT is not answered": {"COMMIT", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := mysqltest.Shared(t)
			proxy := sqlproxy.MySQL(t, server.Addr(), nil)
			s := shopOf(t, server, proxy.Addr())
			proxy.Decide(func(x *sqlproxy.Exchange) (f sqlproxy.Fault) {
				if x.Contains(tt.struck) {
					f.Action = sqlproxy.CutReply
				}
				return f
			})
			_, err := s.store.Claim(t.Context(), "k", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Fenced: true})
			proxy.Decide(nil)
			require.Error(t, err)
			require.Equal(t, tt.certain, errors.Is(err, lock.ErrNotApplied), "%v", err)
			require.Eventually(t, func() bool { // after the server has noticed the end of the connection
				e, err := s.store.Get(t.Context(), "k")
				return err == nil && (e.State == lock.Free) == tt.certain
			}, 10*time.Second, 10*time.Millisecond)
		})
	}
}
