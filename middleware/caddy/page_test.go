package latchcaddy_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/walk"
)

// blocks returns the blocks of a page in a language.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	var all []string
	for _, b := range walk.Blocks(t, page) {
		if b.Language == language {
			all = append(all, b.Text)
		}
	}
	return all
}

// caddyfiles returns the Caddyfiles of docs/gateway.md, with the user bob.
func caddyfiles(t *testing.T) []string {
	t.Helper()
	all := blocks(t, gatewayPage, "caddyfile")
	require.Len(t, all, 2)
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "import /etc/caddy/users", "bob "+hiccup)
	}
	return all
}

const gatewayPage = "../../docs/gateway.md"

// hiccup is the hash of a password.
const hiccup = "$2a$04$SauPpOGTjCDR8V0fw8fv1uEZNBQSH7N/YYRgI3BUDcis4zlF5gawm"

// TestCaddyfilesAreFormatted as caddy fmt formats them: those of all pages, and of the comments of this
// module.
func TestCaddyfilesAreFormatted(t *testing.T) {
	var found int
	formatted := func(file, text string) {
		found++
		require.Equal(t, string(caddyfile.Format([]byte(text))), text, file)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "../../README.md") {
		for _, text := range blocks(t, page, "caddyfile") {
			formatted(page, text)
		}
	}
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, source := range sources {
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		for _, block := range regexp.MustCompile(`(?m)(^//\t.*\n(//\n)?)+`).FindAllString(string(text), -1) {
			lines := strings.TrimSpace(regexp.MustCompile(`(?m)^//\t?`).ReplaceAllString(block, ""))
			if strings.HasSuffix(lines, "}") {
				formatted(source, lines+"\n")
			}
		}
	}
	require.GreaterOrEqual(t, found, 6)
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
