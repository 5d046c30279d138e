package snippets_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/internal/testkit/walk"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// language is how the upstream that is written in it is run, of docs/gateway.md and testdata.
type language struct {
	program string
	args    []string // %PORT is its port
	files   []string // of the page, its blocks in this language in their order
}

var languages = map[string]language{
	"js":     {"node", []string{"shop.js"}, []string{"shop.js"}},
	"python": {"python3", []string{"-B", "serve.py"}, nil},
	"php":    {"php", []string{"-q", "-d", "auto_prepend_file=length.php", "-S", "127.0.0.1:%PORT"}, []string{"length.php"}},
}

const noProgram = `this test runs the lines of docs/gateway.md in each of its languages.
Install them (apt-get install nodejs python3 php-cli, brew install node python php, dnf install nodejs python3 php-cli).`

// foreign is an order service that is not Go, which docs/gateway.md has or links to.
type foreign struct {
	url  *url.URL
	file string // of its orders
}

func startForeign(t *testing.T, name string, l language) *foreign {
	t.Helper()
	testmain.SkipIn(t, testmain.Quick, "starts "+l.program)
	path, err := exec.LookPath(l.program)
	if err != nil {
		testmain.Unavailable(t, noProgram, err)
	}
	port, err := process.FreePort()
	require.NoError(t, err)
	addr, dir := net.JoinHostPort("127.0.0.1", fmt.Sprint(port)), t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/upstreams")))
	for _, b := range walk.Blocks(t, "../gateway.md") {
		if b.Language == name {
			require.NotEmpty(t, l.files, "the page has more than this test runs")
			text := strings.ReplaceAll(b.Text, "3000", fmt.Sprint(port))
			require.NoError(t, os.WriteFile(filepath.Join(dir, l.files[0]), []byte(text), 0o600))
			l.files = l.files[1:]
		}
	}
	require.Empty(t, l.files, "the page has these no more")
	f := &foreign{&url.URL{Scheme: "http", Host: addr}, filepath.Join(dir, "placed")}
	require.NoError(t, os.WriteFile(f.file, nil, 0o600))

	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, strings.Fields(strings.ReplaceAll(strings.Join(l.args, " "), "%PORT", fmt.Sprint(port)))...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "ORDERS="+f.file, fmt.Sprint("PORT=", port))
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // killed is its normal end
	})
	require.Eventually(t, func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		return err == nil && conn.Close() == nil
	}, 30*time.Second, 10*time.Millisecond, "%s does not listen", l.program)
	return f
}

// gateway is one with a store of its own before f.
func (f *foreign) gateway(t *testing.T, opts ...latch.UpstreamOption) http.Handler {
	t.Helper()
	base := &http.Transport{DisableKeepAlives: true}
	return once(lock.New(memstore.New()))(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(f.url) },
		Transport: latch.Upstream(base, opts...),
	})
}

func (f *foreign) requireOrders(t *testing.T, want int) {
	t.Helper()
	orders, err := os.ReadFile(f.file)
	require.NoError(t, err)
	require.Equal(t, want, strings.Count(string(orders), "\n"))
}

func ordered(gateway http.Handler, key, user, does string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("tea"))
	r.Header.Set("X-User-ID", user)
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-Do", does)
	w := httptest.NewRecorder()
	gateway.ServeHTTP(w, r)
	return w
}

// TestUpstreamsInOtherLanguages runs the lines of docs/gateway.md behind a gateway that speaks with
// them.
func TestUpstreamsInOtherLanguages(t *testing.T) {
	t.Parallel()
	for name, l := range languages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startForeign(t, name, l)
			gateway := f.gateway(t, latch.WithUpstreamHeaders())

			first := ordered(gateway, "plain", "42", "")
			require.Equal(t, 201, first.Code, first.Body)
			again := ordered(gateway, "plain", "42", "")
			require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
			require.Equal(t, first.Body.String(), again.Body.String())
			f.requireOrders(t, 1)

			require.Equal(t, 503, ordered(gateway, "busy", "42", "is busy").Code)
			f.requireOrders(t, 1)
			require.Equal(t, 201, ordered(gateway, "busy", "42", "").Code, "nothing was done, so it is sent again")
			f.requireOrders(t, 2)

			require.Equal(t, 503, ordered(gateway, "mail", "42", "sends no mail").Code)
			again = ordered(gateway, "mail", "42", "")
			require.Equal(t, 503, again.Code, "the order is there, and so is this answer")
			require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
			f.requireOrders(t, 3)

			forgetful := f.gateway(t, latch.WithUpstreamHeaders())
			require.Equal(t, 201, ordered(forgetful, "plain", "42", "").Code)
			f.requireOrders(t, 3) // it has the key of the first
			require.Equal(t, 201, ordered(forgetful, "plain", "43", "").Code)
			f.requireOrders(t, 4) // another user's key
		})
	}
}

// TestUpstreamsWithoutTheHeaders is the twin: a gateway that does not listen does not know that
// nothing was done.
func TestUpstreamsWithoutTheHeaders(t *testing.T) {
	t.Parallel()
	for name, l := range languages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gateway := startForeign(t, name, l).gateway(t)
			require.Equal(t, 503, ordered(gateway, "busy", "42", "is busy").Code)
			require.Contains(t, ordered(gateway, "busy", "42", "").Body.String(), "#outcome-unknown")
		})
	}
}
