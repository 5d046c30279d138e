package latchcaddy_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
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

// TestCaddyfilesAreFormatted as caddy fmt formats them: those of all pages, and of the comments of this module.
func TestCaddyfilesAreFormatted(t *testing.T) {
	var found int
	formatted := func(file, text string) {
		found++
		require.Equal(t, string(caddyfile.Format([]byte(text))), text, file)
	}
	pages := must.Get(filepath.Glob("../../docs/*.md"))(t)
	for _, page := range append(pages, "../../README.md") {
		for _, text := range blocks(t, page, "caddyfile") {
			formatted(page, text)
		}
	}
	for _, source := range must.Get(filepath.Glob("*.go"))(t) {
		text := must.Get(os.ReadFile(source))(t)
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
		require.NoError(t, validate(t, must.Get((&gateway{t: t}).adapted(text))(t)), text)
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

// TestRetriesOfThePage: the lines of docs/proxies.md do in this Caddy what the page says. They use
// nothing of this module, but the Caddy of most systems is older.
func TestRetriesOfThePage(t *testing.T) {
	lines := strings.Replace(blocks(t, "../../docs/proxies.md", "caddyfile")[0], "response_header_timeout 15s", "response_header_timeout 1s", 1)
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
	page := must.Get(os.ReadFile("../../docs/proxies.md"))(t)
	version := regexp.MustCompile(`caddyserver/caddy/v2 v(\d+\.\d+)`).FindSubmatch(must.Get(os.ReadFile("go.mod"))(t))[1]
	row := fmt.Sprintf("\n| Caddy %s, these lines | the answer | %s | %s | %s | %s | `%d` | `%d` |\n", version, broken, used, late, busy, atBroken, atLate)
	require.True(t, strings.Contains(string(page), row), row) //nolint:testifylint // its text would be the whole page
}
