package latchcaddy_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/walk"
)

// TestRetriesOfThePage: the lines of docs/proxies.md do in this Caddy what the page says. They use
// nothing of this module, but the Caddy of most systems is older.
func TestRetriesOfThePage(t *testing.T) {
	var lines string
	for _, b := range walk.Blocks(t, "../../docs/proxies.md") {
		if b.Language == "caddyfile" {
			lines = b.Text
		}
	}
	lines = strings.Replace(lines, "response_header_timeout 15s", "response_header_timeout 1s", 1)
	shops := []*shop{newShop(t), newShop(t)}
	g := start(t, "{\n}\n"+strings.NewReplacer(
		":80 {", "http://127.0.0.1:%PORT {",
		"10.0.0.1:8080", shops[0].Listener.Addr().String(), "10.0.0.2:8080", shops[1].Listener.Addr().String(),
	).Replace(lines))
	received := func(key, do string, set ...func(r *http.Request)) (cell string, status int) {
		before := shops[0].placed() + shops[1].placed()
		r := g.request(t.Context(), key, do)
		for _, f := range set {
			f(r)
		}
		status = send(t, r).status
		n := shops[0].placed() + shops[1].placed() - before
		require.Positive(t, n)
		return map[bool]string{true: "1", false: "2+"}[n == 1], status
	}
	for _, do := range []string{"lose the reply", "be late", "be busy"} {
		n, _ := received("", do)
		require.Equal(t, "1", n, "without a key: %s", do)
	}
	for range 2 {
		g.look("/") // leaves a used connection to each shop
	}
	used, _ := received("key", "lose the reply", func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 0 })
	broken, atBroken := received("key", "lose the reply")
	late, atLate := received("key", "be late")
	busy, atBusy := received("key", "be busy")
	require.Equal(t, http.StatusServiceUnavailable, atBusy)

	require.NoError(t, shops[0].Listener.Close())
	shops[0].CloseClientConnections()
	for range 4 {
		require.Equal(t, http.StatusCreated, g.order("", "").status)
	}
	page, err := os.ReadFile("../../docs/proxies.md")
	require.NoError(t, err)
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`caddyserver/caddy/v2 v(\d+\.\d+)`).FindSubmatch(mod)[1]
	row := fmt.Sprintf("\n| Caddy %s, these lines | the answer | %s | %s | %s | %s | `%d` | `%d` |\n", version, broken, used, late, busy, atBroken, atLate)
	require.True(t, strings.Contains(string(page), row), row) //nolint:testifylint // its text would be the whole page
}
