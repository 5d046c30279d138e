package redisstore_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock/redisstore"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	quoted := url.QueryEscape(quotable)
	for name, start := range map[string]func(t *testing.T) (addr string){
		"redis with password": func(t *testing.T) string {
			return "redis://:" + quoted + "@" + redistest.Start(t, "--requirepass", quotable).Addr()
		},
		"redis with user and database": func(t *testing.T) string {
			srv := redistest.Start(t)
			srv.Do(t, "ACL", "SETUSER", "u", "on", ">"+quotable, "~*", "+@all")
			return "redis://u:" + quoted + "@" + srv.Addr() + "/3?pool_size=2&read_timeout=2s"
		},
		"unix": func(t *testing.T) string {
			srv := redistest.Start(t, "--unixsocket", "s", "--requirepass", quotable)
			return "unix://:" + quoted + "@" + filepath.Join(srv.Dir(), "s") + "?db=2"
		},
		"rediss": func(t *testing.T) string {
			return "rediss://" + terminateTLS(t, redistest.Shared(t).Addr()) + "?skip_verify=true"
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
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
	s := must.Get(redisstore.Open(timeout(t, patience), srv.URL(), redisstore.WithoutCheck()))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, untilSent(t, func() error { return s.Check(timeout(t, patience)) }))
	clients, _ := srv.Do(t, "CLIENT", "LIST").(string)
	require.Contains(t, clients, "name=httplatch ")

	srv.Stop()
	defer srv.Cont()
	start := time.Now()
	_, err := s.Claim(context.Background(), keyFor(t), claim("a"))
	require.Error(t, err)
	took := time.Since(start)
	require.GreaterOrEqual(t, took, time.Second, "without a deadline there is a bound")
	require.Less(t, took, 15*time.Second)
}

// A store that is opened without a check while its server is away serves when the server is back.
// The URL is checked in any case.
func TestOpenWithoutCheck(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	s := must.Get(redisstore.Open(t.Context(), server.URL(), redisstore.WithoutCheck()))(t)
	defer func() { require.NoError(t, s.Close()) }()
	require.ErrorContains(t, s.Check(t.Context()), "is the server up")
	server.Restart(t)
	require.Eventually(t, func() bool { return s.Check(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)

	_, err := redisstore.Open(t.Context(), "http://127.0.0.1", redisstore.WithoutCheck())
	require.ErrorContains(t, err, "http")
}

func TestOpenRefusesBadURLs(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                                         "malformed",
		"http://localhost":                         `unknown scheme "http"`,
		"redis://localhost/x":                      "invalid database number",
		"redis://localhost?nope=1":                 "unexpected option: nope",
		"redis://localhost?pool_size=many":         "invalid pool_size number",
		"redis://localhost?%zz":                    "malformed",
		"redis://localhost:99999":                  `invalid port "99999"`,
		"redis://a:6379,b:6379":                    "one server has one host",
		"redis://localhost/-1":                     "invalid database number",
		"unix://":                                  "empty unix socket path",
		"redis-cluster://":                         "no host",
		"redis-cluster://a:1/2":                    "one database only",
		"redis-cluster://a:1,b:x":                  "malformed",
		"redis-sentinel://a:1":                     "no master name",
		"redis-sentinel:///m":                      "no host",
		"redis-sentinel://a:1/m/x":                 "invalid database number",
		"redis-sentinel://a:1/m?replica_only=true": "unexpected option: replica_only",
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
		"wrong password": {
			func(t *testing.T) string {
				return "redis://:geheim@" + redistest.Start(t, "--requirepass", "x").Addr()
			},
			[]string{"redisstore: WRONGPASS: "},
		},
		"too many clients": {
			func(t *testing.T) string {
				srv := redistest.Start(t)
				one := must.Get(net.Dial("tcp", srv.Addr()))(t)
				t.Cleanup(func() { _ = one.Close() })
				srv.Do(t, "CONFIG", "SET", "maxclients", 1)
				return srv.URL()
			},
			[]string{"redisstore: handshake: ERR max number of clients reached"},
		},
		"not Redis": {
			func(t *testing.T) string {
				p := respproxy.Start(t, redistest.Shared(t).Addr())
				p.On(respproxy.Match{}, respproxy.Reply("HTTP/1.1 400 Bad Request\r\n\r\n"))
				return p.URL()
			},
			[]string{"redisstore: handshake: not a reply of Redis: "},
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
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
	https := httptest.NewTLSServer(nil) // has a certificate that no client trusts
	https.Close()
	ln := must.Get(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: https.TLS.Certificates, MinVersion: tls.VersionTLS12}))(t)
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

// refusalsVariable is the environment variable that makes this program one whose Redis is away.
const refusalsVariable = "LATCH_TEST_REFUSALS"

// refuseClaims is a program that opens its store as how says, and has three requests.
func refuseClaims(how string) {
	ctx := context.Background()
	var store *redisstore.Store
	switch how {
	case "Open":
		store, _ = redisstore.Open(ctx, "redis://127.0.0.1:1", redisstore.WithoutCheck())
	case "Open, with a log":
		store, _ = redisstore.Open(ctx, "redis://127.0.0.1:1", redisstore.WithoutCheck())
		redis.SetLogger(stderrLog{})
		_, _ = redisstore.Open(ctx, "redis://127.0.0.1:1", redisstore.WithoutCheck())
		_ = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}).Ping(ctx)
	case "New":
		store = redisstore.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}))
	}
	for i := range 3 {
		_, _ = store.Claim(ctx, fmt.Sprint("lock:", i), claim("a"))
	}
}

type stderrLog struct{}

func (stderrLog) Printf(_ context.Context, format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// TestOpenSilencesTheClient: a program whose Redis is away logs its own lines only. go-redis has one
// log for the process, so each case is a process.
func TestOpenSilencesTheClient(t *testing.T) {
	t.Parallel()
	for how, logs := range map[string]bool{"Open": false, "Open, with a log": true, "New": false} {
		parallel.Run(t, how, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), refusalsVariable+"="+how)
			out := must.Get(cmd.CombinedOutput())(t)
			if !logs {
				require.Empty(t, string(out))
				return
			}
			require.Contains(t, string(out), "failed to dial")
		})
	}
}
