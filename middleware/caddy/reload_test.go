package latchcaddy_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// storesOf starts the servers of the stores, and returns what a Caddyfile says of each, and of another store of its kind.
func storesOf(t *testing.T) map[string][2]string {
	t.Helper()
	redis := redistest.Shared(t).URL()
	postgres := pgtest.DatabaseURL(t)
	return map[string][2]string{
		"redis":    {redis + "\nprefix " + t.Name() + ":", redis + "\nprefix another:"},
		"postgres": {postgres, postgres + "\ntable another"},
		"memory":   {"memory", "memory\nseal " + strings.Repeat("A", 43) + "="},
	}
}

// TestReload loads a configuration in the middle of an order. The order keeps its key, and its
// repeats its answer. A configuration with another store knows neither.
func TestReload(t *testing.T) {
	for name, store := range storesOf(t) {
		for _, other := range []bool{false, true} {
			title, next := name+"/the same store", store[0]
			if other {
				title, next = name+"/another store", store[1]
			}
			t.Run(title, func(t *testing.T) {
				unique := strings.NewReplacer(" ", "-", "/", "-").Replace(title)
				before, k := "before-"+unique, "k-"+unique
				s := newShop(t)
				g := start(t, guarded(s, store[0]))
				require.Equal(t, 201, g.order(before, "").status)
				first := make(chan answer)
				go func() { first <- g.order(k, "wait") }()
				receive(t, s.arrived)
				receive(t, s.arrived)

				// Caddy waits for the requests of the old configuration before load returns.
				reloaded := make(chan error)
				go func() {
					reloaded <- g.load(strings.Replace(guarded(s, next), "\tlatch {\n\t\tidem", "\theader X-Config new\n\tlatch {\n\t\tidem", 1))
				}()
				again := http.StatusConflict
				if other {
					again = http.StatusCreated
				}
				require.Eventually(t, func() bool { return g.look("/").header.Get("X-Config") == "new" }, patience, tick)
				// For a moment, both configurations answer. Only the old one has the key in the other store.
				var status int
				require.Eventually(t, func() bool {
					status = g.order(k, "").status
					return !other || status != http.StatusConflict
				}, patience, tick)
				require.Equal(t, again, status)
				s.release()
				require.NoError(t, <-reloaded)
				require.Equal(t, 201, (<-first).status)
				if other {
					require.Equal(t, 3, s.placed(), "this test can see a second order")
					return
				}
				for _, key := range []string{before, k} {
					require.Equal(t, "true", g.order(key, "").header.Get("Idempotent-Replayed"))
				}
				require.Equal(t, 2, s.placed())
			})
		}
	}
}

// TestTheStoreIsOpenedOnce by all configurations that name it, and closed with the last.
func TestTheStoreIsOpenedOnce(t *testing.T) {
	server := redistest.Start(t)
	connections := func() int { return strings.Count(server.Do(t, "CLIENT", "LIST").(string), "name=httplatch") }
	s := newShop(t)
	g := start(t, guarded(s, server.URL()))
	for range 20 {
		require.NoError(t, g.load(guarded(s, server.URL())))
		require.Eventually(t, func() bool { return g.order("k", "").status == 201 }, patience, tick, "the old configuration closes its connections")
	}
	require.LessOrEqual(t, connections(), 3)
	require.Equal(t, 1, s.placed())
	require.NoError(t, g.load(plain(s)))
	require.Eventually(t, func() bool { return connections() == 0 }, patience, tick)
}

func TestSecretsInKeysAreHashed(t *testing.T) {
	server, s := redistest.Start(t), newShop(t)
	g := start(t, strings.NewReplacer("idempotent orders", "lock user", "scope {header.X-User}", "key by-{header.Authorization} {cookie.session}",
		"key   optional-idempotency-key", "cooldown 1h").Replace(guarded(s, server.URL())))
	r := g.request(t.Context(), "", "")
	r.Header.Set("Authorization", "Bearer secret")
	r.AddCookie(&http.Cookie{Name: "session", Value: "secret"})
	require.Equal(t, 201, send(t, r).status)
	require.Regexp(t, `user=.*by-[0-9a-f]{64}.*[0-9a-f]{64}$`, strings.Join(server.Keys(t), " "))
}

// Caddy starts, other sites work, guarded requests get 503, and a store that comes up is used.
func TestTheStoreIsDown(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	s := newShop(t)
	g := start(t, guarded(s, server.URL()))
	require.Equal(t, 503, g.order("k", "").status)
	require.Equal(t, 201, g.order("", "").status, "without a key it has no guard")
	server.Restart(t)
	require.Eventually(t, func() bool { return g.order("k", "").status == 201 }, patience, tick)
	require.Equal(t, 2, s.placed())
}

// TestReloadToAStoreThatIsDown fails, and the running configuration stays. A store that was down when
// Caddy started does not keep a reload back.
func TestReloadToAStoreThatIsDown(t *testing.T) {
	up, down := redistest.Start(t), redistest.Start(t)
	down.Kill()
	s := newShop(t)
	g := start(t, guarded(s, up.URL()))
	require.Equal(t, 201, g.order("k", "").status)
	require.ErrorContains(t, g.load(guarded(s, down.URL())), "the store of the new configuration is not ready, and the running one stays: ")
	require.Equal(t, "true", g.order("k", "").header.Get("Idempotent-Replayed"))
	up.Kill()
	g.reload(guarded(s, up.URL()) + "\n")

	require.NoError(t, caddy.Stop())
	require.NoError(t, g.load(guarded(s, down.URL())))
	g.reload(guarded(s, down.URL()) + "\n")
	require.Equal(t, 503, g.order("k", "").status)
	require.Equal(t, 1, s.placed())
}

// TestValidateContactsNoServer, so that a configuration can be checked where there is none.
func TestValidateContactsNoServer(t *testing.T) {
	for _, store := range []string{"redis://127.0.0.1:1", "postgres://u@127.0.0.1:1/shop"} {
		require.NoError(t, validate(t, must.Get((&gateway{t: t}).adapted(guarded(newShop(t), store)))(t)))
	}
}

// TestMetrics are on Caddy's endpoint, and count on over a reload.
func TestMetrics(t *testing.T) {
	s := newShop(t)
	config := site(s, "metrics /metrics\nlatch {\nidempotent orders {\nscope global\nkey idempotency-key\n}\n}\nreverse_proxy %SHOP")
	g := start(t, config)
	require.Equal(t, 201, g.order("a", "").status)
	g.reload(config + "\n")
	for range 2 {
		require.Equal(t, 201, g.order("a", "").status)
	}
	metrics := g.look("/metrics").body
	for outcome, n := range map[string]string{"executed": "1", "replayed": "2"} {
		line := regexp.MustCompile(`(?m)^idempotency_\w+_total\{.*outcome="` + outcome + `".*policy="orders".*\} ` + n + `$`)
		require.Regexp(t, line, metrics)
	}
	require.Contains(t, metrics, "lock_inflight")
}

// TestLogOfAStoreThatIsDown has no line that is not Caddy's: go-redis writes lines of its own.
func TestLogOfAStoreThatIsDown(t *testing.T) {
	s := newShop(t)
	port := must.Get(process.FreePort())(t)
	config := strings.ReplaceAll(guarded(s, "redis://127.0.0.1:1"), "%PORT", fmt.Sprint(port))
	config = strings.Replace(config, "{", "{\n\tadmin off\n\tpersist_config off\n\tauto_https off", 1)
	file := filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), caddyArguments+"=run --adapter caddyfile --config "+file, "XDG_DATA_HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir())
	p := must.Get(process.New("caddy", process.Killed, nil))(t)
	t.Cleanup(p.Remove)
	require.NoError(t, p.Start(cmd, func(int) bool { return listens(port) }))
	g := &gateway{t, port}
	for _, key := range []string{"a", "b", "c"} {
		require.Equal(t, 503, g.order(key, "").status)
	}
	p.Kill()
	require.Contains(t, p.Log(), "the store is not ready")
	for line := range strings.Lines(p.Log()) {
		require.True(t, json.Valid([]byte(line)), line)
	}
}

func listens(port int) bool {
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}
