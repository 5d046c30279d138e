package redisstore_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// constructors are the two ways to a store on the server at p.
var constructors = map[string]func(t *testing.T, p *respproxy.Proxy) *redisstore.Store{
	"New": func(t *testing.T, p *respproxy.Proxy) *redisstore.Store {
		t.Helper()
		return overClient(t, p.Addr(), nil)
	},
	"Open": func(t *testing.T, p *respproxy.Proxy) *redisstore.Store { t.Helper(); return open(t, p.URL()) },
}

// refusals are a server's replies instead of executing a command, and whether
// the same command, sent again within a budget, may be executed.
var refusals = []struct {
	text     string
	class    string
	may      bool
	full     bool
	repaired string // a word of the cure
}{
	{text: "OOM command not allowed when used memory > 'maxmemory'.", class: "OOM", full: true, repaired: "maxmemory"},
	{text: "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", class: "MISCONF", repaired: "see its log"},
	{text: "NOREPLICAS Not enough good replicas to write.", class: "NOREPLICAS", repaired: "min-replicas-to-write"},
	{text: "NOPERM this user has no permissions to run the 'set' command", class: "NOPERM", repaired: "+set"},
	{text: "NOAUTH Authentication required.", class: "NOAUTH", repaired: "password"},
	{text: "WRONGPASS invalid username-password pair or user is disabled.", class: "WRONGPASS", repaired: "is wrong"},
	{text: "WRONGTYPE Operation against a key holding the wrong kind of value", class: "WRONGTYPE", repaired: "WithPrefix"},
	{text: "ERR unknown command 'set', with args beginning with: 'latch:lock:k' ", class: "command", repaired: "renamed"},

	{text: "READONLY You can't write against a read only replica.", class: "READONLY", may: true},
	{text: "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", class: "MASTERDOWN", may: true},
	{text: "LOADING Redis is loading the dataset in memory", class: "LOADING", may: true},
	{text: "CLUSTERDOWN The cluster is down", class: "CLUSTERDOWN", may: true},
	{text: "CROSSSLOT Keys in request don't hash to the same slot", class: "CROSSSLOT", may: true},
	{text: "TRYAGAIN Multiple keys request during rehashing of slot", class: "TRYAGAIN", may: true},
	{text: "MOVED 3999 127.0.0.1:6381", class: "MOVED", may: true},
	{text: "ASK 3999 127.0.0.1:6381", class: "ASK", may: true},
	{text: "BUSY Redis is busy running a script.", class: "BUSY", may: true},
}

// A refusal that the same command would get again ends the call at once, and is
// named in the error and the log. The others are tried again.
func TestDenialsAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	for way, store := range constructors {
		for _, tt := range refusals {
			t.Run(way+"/"+tt.class, func(t *testing.T) {
				t.Parallel()
				p := respproxy.Start(t, redistest.Shared(t).Addr())
				s := store(t, p)
				var log bytes.Buffer
				budget := patience // no call may last so long
				if tt.may {
					budget = 2 * time.Second
				}
				l := lock.New(s, lock.WithLease(3*patience), lock.WithBudget(budget), lock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				rule := p.On(respproxy.Match{Name: "set"}, respproxy.ReplyError(tt.text))
				var err error
				var took time.Duration
				for range 10 { // a send in flight at the end of the time is unknown, which can happen on a busy machine
					began := time.Now()
					_, err = l.Acquire(t.Context(), keyFor(t))
					if took = time.Since(began); !tt.may || !errors.Is(err, lock.ErrUnknown) {
						break
					}
				}

				require.ErrorIs(t, err, lock.ErrUnavailable)
				require.NotErrorIs(t, err, lock.ErrUnknown)
				require.Equal(t, tt.class, class(err), err)
				require.Equal(t, tt.full, errors.Is(err, lock.ErrFull))
				require.Contains(t, log.String(), "class="+tt.class)
				if tt.may {
					require.Greater(t, rule.Hits(), 1, "sent again")
				} else {
					require.Equal(t, 1, rule.Hits(), "sent once")
					require.Less(t, took, budget/2)
					require.NotContains(t, err.Error(), "no answer")
					require.NotContains(t, log.String(), "no answer")
					require.Contains(t, strings.ReplaceAll(log.String(), `\"`, `"`), tt.repaired)
				}
				rule.Remove()
				e, err := l.With(lock.WithBudget(patience)).Acquire(t.Context(), keyFor(t))
				require.NoError(t, err)
				require.NoError(t, e.Release(t.Context()))
			})
		}
	}
}
