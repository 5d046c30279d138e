package redisstore_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/carry"
	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/internal/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// impatient follows claims for no longer than their callers wait for their own
// send.
type impatient struct{ *redisstore.Store }

func (s impatient) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if try, ok := ctx.(*carry.Try); ok {
		short := &carry.Try{
			Parent: try.Parent, Deaf: try.Deaf, Until: try.Until, Keep: try.Until,
			Counter: try.Counter, Stalls: try.Stalls, Alarm: try.Alarm,
		}
		defer short.End()
		ctx = short
	}
	return s.Store.Claim(ctx, key, c)
}

// A call that takes longer than its caller waits for its own send, but less than
// the budget, costs no connection: what it has left behind is followed until it is
// answered.
func TestSlowCallsKeepTheirConnections(t *testing.T) {
	t.Parallel()
	const budget, rounds = 6 * time.Second, 4
	const late = budget/3 + 100*time.Millisecond
	for name, way := range map[string]func(*redisstore.Store) lock.Store{
		"followed":     func(s *redisstore.Store) lock.Store { return s },
		"not followed": func(s *redisstore.Store) lock.Store { return impatient{s} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			connections := p.On(respproxy.Match{Name: "hello"}, respproxy.Action{})
			s := alwaysShared(open(t, p.URL()+"?read_timeout=20s"))
			round := func() {
				// One that has not found the store slow yet.
				l := lock.New(way(s), lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(budget))
				p.On(respproxy.Match{Name: "set", Count: 1}, respproxy.DelayReply(late))
				require.NoError(t, l.Do(t.Context(), keyFor(t), func(context.Context) error { return nil }))
				require.NoError(t, l.Close(timeout(t, 20*time.Second)), "nothing is left behind")
			}
			round() // there is a connection for the late one now, and another
			before := connections.Hits()
			for range rounds {
				round()
			}
			if made := connections.Hits() - before; name == "followed" {
				require.Less(t, made, rounds/2)
			} else {
				require.GreaterOrEqual(t, made, rounds/2, "nearly one in each, as some were left of the first round")
			}
			require.Empty(t, redistest.Shared(t).Keys(t, nameOf(t)))
		})
	}
}
