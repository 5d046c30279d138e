package latchcaddy_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const noPHP = `this test runs PHP behind a guard.
Install it (apt-get install php-fpm, brew install php, dnf install php-fpm), or name it: PHP_FPM=/path/to/php-fpm.`

// fpm is a PHP-FPM with the shop of testdata/php, and the file of docs/gateway.md that sends lengths.
type fpm struct {
	dir    string
	socket string
}

func startFPM(t *testing.T) *fpm {
	t.Helper()
	path := os.Getenv("PHP_FPM")
	for _, pattern := range []string{"/usr/sbin/php-fpm*", "/usr/bin/php-fpm*", "/opt/homebrew/sbin/php-fpm*", "/usr/local/sbin/php-fpm*"} {
		if found, _ := filepath.Glob(pattern); path == "" && len(found) > 0 {
			path = found[0]
		}
	}
	if _, err := exec.LookPath(path); err != nil {
		testmain.Unavailable(t, noPHP, err)
	}
	p := must.Get(process.New("php-fpm", process.Killed, nil))(t)
	t.Cleanup(p.Remove)
	f := &fpm{p.Dir, filepath.Join(p.Dir, "fpm.sock")}
	require.NoError(t, os.CopyFS(f.dir, os.DirFS("testdata/php")))
	length := filepath.Join(f.dir, "length.php")
	require.NoError(t, os.WriteFile(length, []byte(blocks(t, gatewayPage, "php")[0]), 0o600))
	config := filepath.Join(f.dir, "fpm.conf")
	require.NoError(t, os.WriteFile(config, []byte("[global]\nerror_log = /dev/stderr\n[www]\nuser = root\ngroup = root\nlisten = "+f.socket+
		"\npm = static\npm.max_children = 3\nphp_admin_value[auto_prepend_file] = "+length+"\n"), 0o600))
	args := []string{"--nodaemonize", "--fpm-config", config}
	if os.Geteuid() == 0 {
		args = append(args, "--allow-to-run-as-root")
	}
	require.NoError(t, p.Start(exec.Command(path, args...), func(int) bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", f.socket)
		return err == nil && conn.Close() == nil
	}))
	return f
}

// placed returns the paths of all orders.
func (f *fpm) placed(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, "placed"))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return strings.Fields(string(text))
}

// at returns a Caddyfile with the program's own paths and ports.
func (f *fpm) at(caddyfile string) string {
	return strings.NewReplacer(
		"redis://localhost:6379", "memory",
		"shop.example.com", "http://127.0.0.1:%PORT",
		"/srv/shop/public", filepath.Join(f.dir, "public"),
		"/run/php/php-fpm.sock", f.socket,
	).Replace(caddyfile)
}

// post sends a keyed order of bob's.
func (g *gateway) post(path, do string) answer {
	g.t.Helper()
	r := g.request(g.t.Context(), "k", do)
	r.URL.Path = path
	r.SetBasicAuth("bob", "hiccup")
	return send(g.t, r)
}

// lines of php_fastcgi, as its documentation has them.
const phpLines = `try_files {path} {path}/index.php index.php
	@php path *.php
	reverse_proxy @php unix//run/php/php-fpm.sock {
		transport fastcgi {
			split .php
		}
	}`

// TestPHP places orders in a front controller, behind which each path is index.php to Caddy: through the
// Caddyfile of docs/gateway.md, through the lines that php_fastcgi stands for, and without a guard.
func TestPHP(t *testing.T) {
	page := caddyfiles(t)[1]
	everywhere := strings.Replace(page, "latch /orders* {", "latch {", 1)
	for name, tt := range map[string]struct {
		caddyfile string
		placed    []string // by three orders, an order of another path, and two refunds, of one key
	}{
		"the page":                       {page, []string{"/orders", "/orders/7", "/refunds", "/refunds"}},
		"the lines of php_fastcgi":       {strings.Replace(page, "php_fastcgi unix//run/php/php-fpm.sock", phpLines, 1), []string{"/orders", "/orders/7", "/refunds", "/refunds"}},
		"no matcher":                     {everywhere, []string{"/orders", "/orders/7", "/refunds"}},
		"an expression":                  {strings.Replace(page, "latch /orders* {", "@orders expression `{path}.startsWith('/orders')`\nlatch @orders {", 1), []string{"/orders", "/orders/7", "/refunds", "/refunds"}},
		"a key of the path":              {strings.Replace(everywhere, "idempotency-key", "idempotency-key {path}", 1), []string{"/orders", "/orders/7", "/refunds"}},
		"a guard of no such path":        {strings.Replace(page, "latch /orders*", "latch /payments*", 1), []string{"/orders", "/orders", "/orders", "/orders/7", "/refunds", "/refunds"}},
		"a matcher of the file":          {strings.Replace(page, "latch /orders*", "latch /index.php", 1), []string{"/orders", "/orders", "/orders", "/orders/7", "/refunds", "/refunds"}},
		"inside of handle":               {strings.NewReplacer("latch /", "handle {\nlatch /", "file_server", "file_server\n}").Replace(page), []string{"/orders", "/orders/7", "/refunds", "/refunds"}},
		"a rewrite of the program's own": {strings.Replace(page, "php_fastcgi", "rewrite /orders* /index.php\nphp_fastcgi", 1), []string{"/orders", "/orders/7", "/refunds", "/refunds"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFPM(t)
			g := start(t, f.at(tt.caddyfile))
			for _, path := range []string{"/orders", "/orders", "/orders", "/orders/7", "/refunds", "/refunds"} {
				a := g.post(path, "")
				require.Equal(t, []any{201, path + " as bob"}, []any{a.status, a.body})
			}
			require.Equal(t, tt.placed, f.placed(t))
		})
	}
}

// TestPHPDies while it answers: a worker is killed after it has placed the order.
func TestPHPDies(t *testing.T) {
	f := startFPM(t)
	g := start(t, f.at(caddyfiles(t)[1]))
	require.Equal(t, 502, g.post("/orders", "lose the reply").status)
	for range 2 {
		require.Contains(t, g.post("/orders", "").body, "#outcome-unknown")
	}
	require.Equal(t, []string{"/orders"}, f.placed(t))
}
