package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// loss is which replies the incident loses.
type loss struct {
	name string
	// start makes the proxy lose them and returns how that ends.
	start func(p *respproxy.Proxy, user string, how respproxy.End) (stop func())
}

const (
	claims   = "set"
	releases = "eval|evalsha|del"
)

func lose(name string, count int, commands ...string) loss {
	return loss{name, func(p *respproxy.Proxy, user string, how respproxy.End) func() {
		for _, c := range commands {
			p.On(respproxy.Match{Name: c, Key: user, Count: count}, respproxy.Swallow(how))
		}
		return p.Clear
	}}
}

var losses = []loss{
	lose("one reply of the claim", 1, claims),
	lose("all replies of the claim", 0, claims),
	lose("one reply of the release", 1, releases),
	lose("all replies of the release", 0, releases),
	lose("one reply of both", 1, claims, releases),
	lose("all replies of both", 0, claims, releases),
	{"every reply for 2 s", func(p *respproxy.Proxy, _ string, how respproxy.End) func() {
		p.SwallowReplies(how)
		over := time.Now().Add(2 * time.Second)
		return func() {
			time.Sleep(time.Until(over))
			p.Clear()
		}
	}},
}

var ends = map[string]respproxy.End{"close": respproxy.Close, "reset": respproxy.Reset, "hang": respproxy.Hang}

const work = 20 * time.Millisecond

// incident replays the founding incident on a desk behind p and says what is
// wrong with how it went.
func incident(t *testing.T, d *desk, p *respproxy.Proxy, server *redistest.Server, l loss, how respproxy.End, user string) error {
	t.Helper()
	if err := d.within(t, user, time.Now().Add(budget)); err != nil {
		return fmt.Errorf("without a fault: %w", err)
	}
	stop := l.start(p, user, how)
	met := d.order(t, user, work)
	if met.status != http.StatusCreated && met.status != http.StatusServiceUnavailable {
		return fmt.Errorf("the request that met the fault: %d", met.status)
	}
	if bound := 2*budget + work + slack; met.took > bound {
		return fmt.Errorf("the request that met the fault took %v, not at most %v", met.took, bound)
	}
	stop()
	if err := d.within(t, user, time.Now().Add(budget)); err != nil {
		return fmt.Errorf("the next order: %w", err)
	}
	return left(t, server, "latch:*", soon)
}

func TestIncident(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "waits for budgets on each kind of server")
	t.Parallel()
	for _, s := range slices.Concat(setups, []setup{redis62}) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p, server, store := s.start(t)
			d := newDesk(t, perUser(locker(t, store)))
			for _, l := range losses {
				for end, how := range ends {
					t.Run(l.name+"/"+end, func(t *testing.T) {
						require.NoError(t, incident(t, d, p, server, l, how, "user-"+end))
					})
				}
			}
		})
	}
}

// The twin: SetNX and Del with go-redis as it comes, which is what the service
// of the incident did. The same check must catch it.
func TestNaiveLockFailsTheIncident(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "checks another library")
	t.Parallel()
	for end, how := range ends {
		t.Run(end, func(t *testing.T) {
			server := redistest.Start(t)
			p := respproxy.Start(t, server.Addr())
			client := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: budget, ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = client.Close() })
			d := newDesk(t, naive(client))
			failed := 0
			for _, l := range losses[:2] {
				err := incident(t, d, p, server, l, how, "user-"+l.name)
				t.Logf("%s: %v", l.name, err)
				if err != nil {
					failed++
				}
			}
			require.Equal(t, 2, failed, "the check must not let a naive lock pass")
		})
	}
}

func naive(client *redis.Client) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), budget)
			defer cancel()
			key := "latch:naive:" + r.Header.Get("X-User-ID")
			ok, err := client.SetNX(ctx, key, "1", 2*time.Hour).Result()
			switch {
			case err != nil:
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			case !ok:
				w.WriteHeader(http.StatusConflict)
				return
			}
			defer client.Del(context.WithoutCancel(r.Context()), key)
			next.ServeHTTP(w, r)
		})
	}
}

// isGuardedClaim: EVALSHA sha 1 key value px replaces not-after. The last is empty without a fence.
func isGuardedClaim(args [][]byte) bool { return len(args) == 8 && len(args[7]) > 0 }

// What a locker that asks once and never cleans up leaves behind: the twin of
// the checks for keys at rest.
func TestLeftSeesAnOrphan(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	_, err := store.Claim(t.Context(), "user=42", orphan)
	require.NoError(t, err)
	require.Error(t, left(t, server, "latch:*", 100*time.Millisecond))
}
