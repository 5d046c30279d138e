package redisstore_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock/redisstore"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	const password = "p@ss:w/rd#?%"
	quoted := url.QueryEscape(password)

	for name, start := range map[string]func(t *testing.T) (addr string){
		"redis": func(t *testing.T) string { return redistest.Shared(t).URL() },
		"redis with password": func(t *testing.T) string {
			return "redis://:" + quoted + "@" + redistest.Start(t, "--requirepass", password).Addr()
		},
		"redis with user and database": func(t *testing.T) string {
			srv := redistest.Start(t)
			srv.Do(t, "ACL", "SETUSER", "u", "on", ">"+password, "~*", "+@all")
			return "redis://u:" + quoted + "@" + srv.Addr() + "/3?pool_size=2&read_timeout=2s"
		},
		"unix": func(t *testing.T) string {
			srv := redistest.Start(t, "--unixsocket", "s", "--requirepass", password)
			return "unix://:" + quoted + "@" + filepath.Join(srv.Dir(), "s") + "?db=2"
		},
		"rediss": func(t *testing.T) string {
			return "rediss://" + terminateTLS(t, redistest.Shared(t).Addr()) + "?skip_verify=true"
		},
		"redis-cluster": func(t *testing.T) string {
			cluster := redistest.StartCluster(t, 1, nil, "--requirepass", password)
			addr := cluster.Addrs()[0]
			return "redis-cluster://:" + quoted + "@" + addr + "," + addr + "?pool_size=2"
		},
		"redis-sentinel": func(t *testing.T) string {
			master := redistest.Start(t, "--requirepass", password)
			addr := startSentinel(t, "the-master", master, "sentinel-"+password)
			return "redis-sentinel://:" + quoted + "@" + addr + "," + addr + "/the-master/1" +
				"?sentinel_password=" + url.QueryEscape("sentinel-"+password)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, start(t), redisstore.WithPrefix(t.Name()+":"))
			take(t, s, keyFor(t), claim("a"))
			take(t, s, keyFor(t)+"&2", fenced("a"))
			release(t, s, keyFor(t), "a")
			require.Len(t, listed(t, s), 1)
			require.Equal(t, 15*time.Second, s.Describe().MaxLag)
			release(t, s, keyFor(t)+"&2", "a")
		})
	}
}

func TestOpenSetsTheClientUp(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	const obstacle = "?read_timeout=30s"
	var obedient, plain *redisstore.Store
	for query, s := range map[string]**redisstore.Store{obstacle: &obedient, "": &plain} {
		opened, err := redisstore.Open(timeout(t, patience), srv.URL()+query, redisstore.WithoutCheck())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, opened.Close()) })
		*s = opened
		require.NoError(t, untilSent(t, func() error { return opened.Check(timeout(t, patience)) }))
	}
	clients, _ := srv.Do(t, "CLIENT", "LIST").(string)
	require.Contains(t, clients, "name=httplatch ")

	srv.Stop()
	defer srv.Cont()
	start := time.Now()
	requireUnknown(t, untilSent(t, func() error {
		_, err := obedient.Claim(timeout(t, 200*time.Millisecond), keyFor(t), claim("a"))
		return err
	}), "silent")
	require.Less(t, time.Since(start), 15*time.Second, "the context's deadline is obeyed")
	start = time.Now()
	_, err := plain.Claim(context.Background(), keyFor(t), claim("a"))
	require.Error(t, err)
	took := time.Since(start)
	require.GreaterOrEqual(t, took, time.Second, "and without one there is a bound")
	require.Less(t, took, 15*time.Second)
}

// A store that is opened without a check while its server is away serves when the server is back.
// The URL is checked in any case.
func TestOpenWithoutCheck(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	s, err := redisstore.Open(t.Context(), server.URL(), redisstore.WithoutCheck())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.ErrorContains(t, s.Check(t.Context()), "is the server up")
	server.Restart(t)
	require.Eventually(t, func() bool { return s.Check(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)

	_, err = redisstore.Open(t.Context(), "http://127.0.0.1", redisstore.WithoutCheck())
	require.ErrorContains(t, err, "http")
}

func TestOpenRefusesBadURLs(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                                         "malformed",
		"localhost:6379":                           "malformed",
		"http://localhost":                         `unknown scheme "http"`,
		"redis://localhost/x":                      "invalid database number",
		"redis://localhost/1/2":                    "invalid URL path",
		"redis://localhost?nope=1":                 "unexpected option: nope",
		"redis://localhost?pool_size=many":         "invalid pool_size number",
		"redis://localhost?%zz":                    "malformed",
		"redis://localhost:99999":                  `invalid port "99999"`,
		"redis://localhost:0":                      `invalid port "0"`,
		"redis://a:6379,b:6379":                    "one server has one host",
		"redis://localhost/-1":                     "invalid database number",
		"redis-cluster://a:1,b:99999":              `invalid port "99999"`,
		"redis-sentinel://a:99999/m":               `invalid port "99999"`,
		"redis-sentinel://a:1/m/-1":                "invalid database number",
		"unix://":                                  "empty unix socket path",
		"redis-cluster://":                         "no host",
		"redis-cluster://a:1/2":                    "one database only",
		"redis-cluster://a:1,b:x":                  "malformed",
		"redis-sentinel://a:1":                     "no master name",
		"redis-sentinel://a:1/":                    "no master name",
		"redis-sentinel:///m":                      "no host",
		"redis-sentinel://a:1/m/x":                 "invalid database number",
		"redis-sentinel://a:1/m?replica_only=true": "unexpected option: replica_only",
		"redis-cluster://a:1?nope=1":               "unexpected option: nope",
		"redis-cluster://a:1?db=2":                 "one database only",
		"redis-cluster://a:1,,b:1":                 "no host",
	} {
		_, err := redisstore.Open(t.Context(), raw)
		require.ErrorContains(t, err, "redisstore.Open: URL: ", raw)
		require.ErrorContains(t, err, want, raw)
		require.ErrorContains(t, err, "redis-sentinel://", "the forms are listed")
	}
}

func TestOpenNeverTellsThePassword(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"redis", "rediss", "unix", "redis-cluster", "redis-sentinel", "http", "redis-cluster+x"} {
		for _, password := range []string{"geheim", "ge/heim", "ge#heim", "ge?heim", "ge@heim", "ge:heim", "12/heim", "ge%heim", "ge heim", "ge\x7fheim"} {
			for _, tail := range []string{"127.0.0.1:1", "127.0.0.1:1/0", "127.0.0.1:1/m/0", "127.0.0.1:x", "a,b:1", ""} {
				raw := scheme + "://user:" + password + "@" + tail
				_, err := redisstore.Open(timeout(t, time.Second), raw)
				require.Error(t, err, raw)
				require.NotContains(t, err.Error(), "heim", raw)
			}
		}
	}
}

func TestOpenFailures(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		start func(t *testing.T) string
		want  []string
	}{
		"no server there": {
			func(t *testing.T) string {
				p := respproxy.Start(t, redistest.Shared(t).Addr())
				p.Down()
				return p.URL()
			},
			[]string{"redisstore: dial: ", "connection refused", "is the server up"},
		},
		"no Sentinel there": {
			func(*testing.T) string { return "redis-sentinel://127.0.0.9/m" },
			[]string{"redisstore: dial: ", "127.0.0.9:26379"},
		},
		"no password": {
			func(t *testing.T) string { return "redis://" + redistest.Start(t, "--requirepass", "x").Addr() },
			[]string{"redisstore: NOAUTH: ", "set it in the client's options or the URL"},
		},
		"wrong password": {
			func(t *testing.T) string {
				return "redis://:geheim@" + redistest.Start(t, "--requirepass", "x").Addr()
			},
			[]string{"redisstore: WRONGPASS: "},
		},
		"evicting": {
			func(t *testing.T) string {
				return redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru").URL()
			},
			[]string{"redisstore: EVICTION: ", "noeviction"},
		},
		"part of a cluster": {
			func(t *testing.T) string { return redistest.Start(t, "--cluster-enabled", "yes").URL() },
			[]string{"redisstore: MOVED: ", "redis-cluster://"},
		},
		"not Redis": {
			func(t *testing.T) string {
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				t.Cleanup(func() { _ = ln.Close() })
				go func() {
					for {
						c, err := ln.Accept()
						if err != nil {
							return
						}
						_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
						_ = c.Close()
					}
				}()
				return "redis://" + ln.Addr().String()
			},
			[]string{"redisstore: "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := tt.start(t)
			start := time.Now()
			_, err := redisstore.Open(timeout(t, 2*patience), withLongTimeouts(raw))
			require.Error(t, err)
			require.Less(t, time.Since(start), patience)
			require.NotContains(t, err.Error(), "geheim")
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// terminateTLS listens with TLS in front of addr.
func terminateTLS(t *testing.T, addr string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS12,
	})
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = ln.Close() })
	wg.Go(func() {
		for {
			front, err := ln.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial("tcp", addr)
			if err != nil {
				_ = front.Close()
				continue
			}
			wg.Go(func() { _, _ = io.Copy(back, front); _ = back.Close() })
			wg.Go(func() { _, _ = io.Copy(front, back); _ = front.Close() })
		}
	})
	return ln.Addr().String()
}

// startSentinel starts a Sentinel that watches master under name, and wants
// password.
func startSentinel(t *testing.T, name string, master *redistest.Server, password string) string {
	t.Helper()
	bin := os.Getenv("REDIS_SERVER")
	if bin == "" {
		bin = "redis-server"
	}
	port, err := process.FreePort()
	require.NoError(t, err)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	masterPassword := strings.TrimPrefix(password, "sentinel-")
	require.NoError(t, os.WriteFile(conf, []byte(strings.Join([]string{
		"port " + strconv.Itoa(port),
		"bind 127.0.0.1",
		"dir " + t.TempDir(),
		"requirepass " + strconv.Quote(password),
		"sentinel monitor " + name + " 127.0.0.1 " + strconv.Itoa(master.Port()) + " 1",
		"sentinel auth-pass " + name + " " + strconv.Quote(masterPassword),
	}, "\n")), 0o600))
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), bin, conf, "--sentinel")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	return addr
}
