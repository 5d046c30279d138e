package proxies_test

import (
	"context"
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

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/internal/testkit/walk"
)

func TestMain(m *testing.M) {
	testmain.AtOnce(4)
	goleak.VerifyTestMain(m)
}

// kind is a proxy as Debian has it.
type kind struct {
	name, program string

	// version is the one of docs/proxies.md, which the arguments ask print.
	version, ask string

	// language is of the proxy's block in docs/proxies.md, "" if it has none. set replaces what has
	// to be different in a test: pairs of texts.
	language string
	set      []string

	// bare has two servers, {a} and {b}, and a timeout of 1 s. Everything else is the program's
	// default, except that a server that has failed is asked again at once.
	bare string

	// whole is a file around lines of docs/proxies.md or bare, which it has as {lines}.
	whole string

	// command runs the program in the foreground, a line without quotes.
	command string
}

// The proxies of docs/proxies.md that are not on paper.
var (
	nginx = kind{
		name: "nginx", program: "nginx", version: "1.22", ask: "-v", language: "nginx",
		set: []string{"10.0.0.1:8080", "{a}", "10.0.0.2:8080", "{b}", "listen 80;", "listen 127.0.0.1:{port};", "read_timeout 15s", "read_timeout 1s"},
		bare: `upstream shop {
	server {a} max_fails=0;
	server {b} max_fails=0;
}
server {
	listen 127.0.0.1:{port};
	location / {
		proxy_pass http://shop;
		proxy_read_timeout 1s;
	}
}`,
		whole: `daemon off;
pid {dir}/nginx.pid;
error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path {dir}/body;
	proxy_temp_path {dir}/proxy;
	fastcgi_temp_path {dir}/fastcgi;
	uwsgi_temp_path {dir}/uwsgi;
	scgi_temp_path {dir}/scgi;
{lines}
}`,
		command: "-e stderr -c {file}",
	}
	haproxy = kind{
		name: "HAProxy", program: "haproxy", version: "2.6", ask: "-v", language: "haproxy",
		set: []string{"10.0.0.1:8080", "{a}", "10.0.0.2:8080", "{b}", "bind :80", "bind 127.0.0.1:{port}", "timeout server  15s", "timeout server 1s"},
		bare: `defaults
	mode http
	timeout connect 5s
	timeout client 1m
	timeout server 1s
frontend http
	bind 127.0.0.1:{port}
	default_backend shop
backend shop
	server a {a}
	server b {b}`,
		whole:   "{lines}\n",
		command: "-W -f {file}",
	}
	caddy = kind{
		name: "Caddy", program: "caddy", version: "2.6", ask: "version", language: "caddyfile",
		set: []string{"10.0.0.1:8080", "{a}", "10.0.0.2:8080", "{b}", ":80 {", "http://127.0.0.1:{port} {", "timeout 15s", "timeout 1s", "request_buffers 64KiB", ""},
		bare: `http://127.0.0.1:{port} {
	reverse_proxy {a} {b} {
		lb_policy round_robin
		transport http {
			response_header_timeout 1s
		}
	}
}`,
		whole: `{
	admin unix/{dir}/admin
}
{lines}`,
		command: "run --adapter caddyfile --config {file}",
	}
	apache = kind{
		name: "Apache", program: "apache2", version: "2.4", ask: "-v",
		bare: `<Proxy balancer://shop>
	BalancerMember http://{a} retry=0
	BalancerMember http://{b} retry=0
</Proxy>
ProxyPass / balancer://shop/
ProxyTimeout 1`,
		whole: `ServerRoot {dir}
ServerName shop
PidFile {dir}/apache.pid
DefaultRuntimeDir {dir}
ErrorLog {dir}/error.log
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so
LoadModule proxy_balancer_module /usr/lib/apache2/modules/mod_proxy_balancer.so
LoadModule lbmethod_byrequests_module /usr/lib/apache2/modules/mod_lbmethod_byrequests.so
LoadModule slotmem_shm_module /usr/lib/apache2/modules/mod_slotmem_shm.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
Listen 127.0.0.1:{port}
{lines}`,
		command: "-D FOREGROUND -f {file}",
	}
	varnish = kind{
		name: "Varnish", program: "varnishd", version: "7.1", ask: "-V",
		bare: `vcl 4.1;
import directors;
backend a { .host = "{a.host}"; .port = "{a.port}"; .first_byte_timeout = 1s; }
backend b { .host = "{b.host}"; .port = "{b.port}"; .first_byte_timeout = 1s; }
sub vcl_init {
	new shop = directors.round_robin();
	shop.add_backend(a);
	shop.add_backend(b);
}
sub vcl_recv {
	set req.backend_hint = shop.backend();
}`,
		whole:   "{lines}\n",
		command: "-F -j none -n {dir}/work -a 127.0.0.1:{port} -f {file}",
	}
)

const howToInstall = `this test needs the proxies of docs/proxies.md.
Install them (apt-get install nginx haproxy caddy apache2-bin varnish).`

type proxy struct {
	*process.Program

	kind
	t    *testing.T
	path string // of the program
	port int
}

func (k kind) start(t *testing.T, lines, a, b string) *proxy {
	t.Helper()
	p := &proxy{kind: k, t: t}
	var err error
	if p.path, err = lookSystemPath(k.program); err != nil {
		testmain.Unavailable(t, howToInstall, err)
	}
	user := must.Get(process.Unprivileged())(t)
	p.Program = must.Get(process.New(k.program, process.Killed, user))(t)
	t.Cleanup(p.Remove)
	must.Get(process.StartAtFreePort(func(port int) error {
		p.port = port
		if err := p.write(lines, a, b); err != nil {
			return err
		}
		return p.Start(p.cmd(k.command), func(int) bool { return listens(p.addr()) })
	}))(t)
	return p
}

// requireVersion ends the test if the program is not of the version of the page.
func (k kind) requireVersion(t *testing.T) {
	t.Helper()
	path, err := lookSystemPath(k.program)
	if err != nil {
		testmain.Unavailable(t, howToInstall, err)
	}
	out := must.Get(exec.Command(path, k.ask).CombinedOutput())(t)
	if is := regexp.MustCompile(`\d+\.\d+`).FindString(string(out)); is != k.version {
		testmain.Unavailable(t, "docs/proxies.md is about Debian 12", fmt.Errorf("this is %s %s, and not %s", k.name, is, k.version))
	}
}

func lookSystemPath(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath(filepath.Join("/usr/sbin", program))
	}
	return path, err
}

func (p *proxy) addr() string { return net.JoinHostPort("127.0.0.1", fmt.Sprint(p.port)) }

func (p *proxy) file() string { return filepath.Join(p.Dir, "proxy.conf") }

func (p *proxy) write(lines, a, b string) error {
	host := func(addr string) string { host, _, _ := net.SplitHostPort(addr); return host }
	port := func(addr string) string { _, port, _ := net.SplitHostPort(addr); return port }
	text := strings.NewReplacer(
		"{dir}", p.Dir, "{port}", fmt.Sprint(p.port), "{a}", a, "{b}", b,
		"{a.host}", host(a), "{a.port}", port(a), "{b.host}", host(b), "{b.port}", port(b),
	).Replace(strings.Replace(p.whole, "{lines}", lines, 1))
	if err := os.WriteFile(p.file(), []byte(text+"\n"), 0o600); err != nil {
		return err
	}
	return p.Own(p.file())
}

func (p *proxy) cmd(args string) *exec.Cmd {
	args = strings.NewReplacer("{file}", p.file(), "{dir}", p.Dir, "{port}", fmt.Sprint(p.port)).Replace(args)
	cmd := exec.CommandContext(context.Background(), p.path, strings.Fields(args)...)
	cmd.Env = append(os.Environ(), "HOME="+p.Dir, "XDG_DATA_HOME="+p.Dir, "XDG_CONFIG_HOME="+p.Dir)
	return cmd
}

func listens(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// newClient returns a client whose connections no other has.
func newClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

const page = "../../../../docs/proxies.md"

// lines returns the lines of the page for a proxy, with the servers of a test, and a timeout of 1 s.
func (k kind) lines(t *testing.T) string {
	t.Helper()
	var found []string
	for _, b := range walk.Blocks(t, page) {
		if b.Language == k.language {
			found = append(found, b.Text)
		}
	}
	require.Len(t, found, 1, "%s has one block for %s", page, k.name)
	text := found[0]
	for i := 0; i < len(k.set); i += 2 {
		require.Contains(t, text, k.set[i])
		text = strings.ReplaceAll(text, k.set[i], k.set[i+1])
	}
	return text
}
