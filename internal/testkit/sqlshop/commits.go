package sqlshop

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/lock"
)

// Commit is a fault of the COMMIT of work.
type Commit struct {
	Fault    sqlproxy.Fault
	Executed bool
}

// late is the delay of a COMMIT or of its answer.
const late = 3 * time.Second

// commits are the fates of a COMMIT over all proxies.
var commits = map[string]Commit{
	"answered":       {sqlproxy.Fault{}, true},
	"reply lost":     {sqlproxy.Fault{Action: sqlproxy.LoseReply}, true},
	"cut after it":   {sqlproxy.Fault{Action: sqlproxy.LoseReplyAndCut}, true},
	"cut within it":  {sqlproxy.Fault{Action: sqlproxy.CutReply, Bytes: 3}, true},
	"reply late":     {sqlproxy.Fault{Action: sqlproxy.DelayReply, Delay: late}, true},
	"request lost":   {sqlproxy.Fault{Action: sqlproxy.LoseRequest}, false},
	"cut before it":  {sqlproxy.Fault{Action: sqlproxy.CutRequest}, false},
	"late":           {sqlproxy.Fault{Action: sqlproxy.DelayRequest, Delay: late}, false},
	"no end is seen": {sqlproxy.Fault{Action: sqlproxy.Freeze}, false},
}

// TestCommits lets a COMMIT without an answer be executed or not, which the caller is answered, and a
// repeat confirms. open returns a shop behind a proxy, and is reports a COMMIT of work.
func TestCommits(t *testing.T, is func(*sqlproxy.Exchange) bool, more map[string]Commit, open func(t *testing.T) (*Shop, *sqlproxy.Proxy)) {
	t.Helper()
	for _, all := range []map[string]Commit{commits, more} {
		for name, tt := range all {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, proxy := open(t)
				l := Locker(t, s.Store, lock.WithBudget(time.Second))
				_, _, err := l.Once(t.Context(), "warm", nil, s.Order("warm"))
				require.NoError(t, err)
				var struck atomic.Bool
				proxy.Decide(func(x *sqlproxy.Exchange) sqlproxy.Fault {
					if is(x) && !struck.Swap(true) {
						return tt.Fault
					}
					return sqlproxy.Fault{}
				})
				began := time.Now()
				_, replayed, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
					if tt.Executed { // a wrong "rolled back" is then an error, and no second look at the key
						if err := lock.Commit(ctx); err != nil {
							return nil, err
						}
					}
					return s.Order("first")(ctx)
				})
				t.Logf("%v, after %v", err, time.Since(began))
				require.False(t, replayed, "it was taken for another's")
				if tt.Executed {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, lock.ErrNotApplied)
					require.ErrorIs(t, err, lock.ErrUnavailable)
				}
				receipt, replayed, err := l.Once(t.Context(), "k", nil, s.Order("second"))
				require.NoError(t, err)
				require.Equal(t, tt.Executed, replayed)
				if tt.Fault.Action == sqlproxy.DelayRequest {
					time.Sleep(time.Until(began.Add(late + 1500*time.Millisecond))) // it has come, and found no claim
				}
				require.ElementsMatch(t, []string{string(receipt), "warm"}, s.Orders(t))
				_, err = s.DB.ExecContext(t.Context(), s.Insert, "nothing is locked")
				require.NoError(t, err)
			})
		}
	}
}
