package latchcaddy_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// caddyfiles returns the Caddyfiles of docs/gateway.md.
func caddyfiles(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/gateway.md")
	require.NoError(t, err)
	var all []string
	for _, block := range regexp.MustCompile("(?s)```caddyfile\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		all = append(all, strings.ReplaceAll(block[1], "import /etc/caddy/users", "bob $2a$04$I.fl2tkMeA6UF9.1b.nWCO5LmJxwGK2MA6Rdg2e2xrkeeYiin/rLG"))
	}
	require.Len(t, all, 2)
	return all
}

func TestPageIsValid(t *testing.T) {
	for _, text := range caddyfiles(t) {
		config, err := (&gateway{t: t}).adapted(text)
		require.NoError(t, err, text)
		var parsed *caddy.Config
		require.NoError(t, caddy.StrictUnmarshalJSON(config, &parsed))
		require.NoError(t, caddy.Validate(parsed), text)
	}
}

// TestPage plays the first Caddyfile of the page: repeats and double clicks of the user of the
// session, whom no header of the client can change.
func TestPage(t *testing.T) {
	s := newShop(t)
	g := start(t, strings.NewReplacer(
		"redis://localhost:6379", redistest.Shared(t).URL(),
		"prefix shop:", "prefix "+t.Name()+":",
		"shop.example.com", "http://127.0.0.1:%PORT",
		"localhost:3000", s.Listener.Addr().String(),
	).Replace(caddyfiles(t)[0]))
	order := func(key, session, header string) answer {
		r := g.request(t.Context(), key, "")
		r.Header.Set("X-Session", session)
		r.Header.Set("X-User", header)
		return send(t, r)
	}
	require.Equal(t, `order 1 of "tea"`, order("k", "42", "1").body)
	require.Equal(t, `order 1 of "tea"`, order("k", "42", "2").body)
	require.Equal(t, `order 2 of "tea"`, order("k", "43", "1").body)
	require.Equal(t, `order 3 of "tea"`, order("", "42", "1").body)
	require.Equal(t, `order 3 of "tea"`, order("", "42", "2").body)
	require.Equal(t, http.StatusBadRequest, order("k", "", "42").status, "no session, and a header of the client's own")
	require.Equal(t, 3, s.placed())
}
