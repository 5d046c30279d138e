package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	desk "github.com/httplatch/httplatch/example"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

var connections = &http.Client{Transport: &http.Transport{}}

const tea = `{"sku":"tea","quantity":1}`

type client struct {
	t    *testing.T
	url  string
	stop context.CancelFunc // as SIGTERM
}

func start(t *testing.T, args ...string) *client {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	stdout, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- desk.Run(ctx, append(args, "-addr", "127.0.0.1:0"), func(string) string { return "" }, out)
		_ = out.Close()
	}()
	greeting := bufio.NewReader(stdout)
	line, err := greeting.ReadString('\n')
	go func() { _, _ = io.Copy(io.Discard, greeting) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		connections.CloseIdleConnections()
	})
	require.NoError(t, err)
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	require.True(t, ok, line)
	return &client{t, address, stop}
}

func (c *client) do(method, path, body string, header ...string) (status int, got http.Header, text string) {
	c.t.Helper()
	r := must.Get(http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body)))(c.t)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := connections.Do(r)
	require.NoError(c.t, err)
	defer func() { _ = resp.Body.Close() }()
	all := must.Get(io.ReadAll(resp.Body))(c.t)
	return resp.StatusCode, resp.Header, string(all)
}

func (c *client) orders(user string) (all []struct{ ID, Status string }) {
	c.t.Helper()
	_, _, text := c.do("GET", "/orders?user="+user, "")
	require.NoError(c.t, json.Unmarshal([]byte(text), &all))
	return all
}

func onBothStores(t *testing.T, test func(t *testing.T, c *client)) {
	t.Helper()
	for name, args := range map[string][]string{"memory": nil, "redis": {"-redis", redistest.Start(t).URL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t, append(args, "-budget", "2s")...))
		})
	}
}

func TestOrders(t *testing.T) {
	onBothStores(t, func(t *testing.T, c *client) {
		var statuses [8]int
		var all sync.WaitGroup
		for i := range statuses {
			all.Go(func() { statuses[i], _, _ = c.do("POST", "/orders", tea, "X-User-ID", "42", "X-Work", "1s") })
		}
		all.Wait()
		placed := 0
		for _, status := range statuses {
			require.Contains(t, []int{201, 409}, status)
			placed += (409 - status) / (409 - 201)
		}
		require.Len(t, c.orders("42"), placed)
		require.Less(t, placed, len(statuses))

		status, header, first := c.do("POST", "/orders", tea, "X-User-ID", "43", "Idempotency-Key", "a")
		require.Equal(t, 201, status, first)
		_, _, again := c.do("POST", "/orders", tea, "X-User-ID", "43", "Idempotency-Key", "a")
		require.Equal(t, first, again)
		require.Len(t, c.orders("43"), 1)
		status, _, _ = c.do("POST", "/orders", `{"sku":"coffee","quantity":1}`, "X-User-ID", "43", "Idempotency-Key", "a")
		require.Equal(t, 422, status)

		path := header.Get("Location")
		status, _, _ = c.do("POST", path+"/pay", "")
		require.Equal(t, 400, status, "a payment needs a key")
		status, _, text := c.do("POST", path+"/pay", "", "Idempotency-Key", "b")
		require.Equal(t, 200, status, text)
		require.Equal(t, "paid", c.orders("43")[0].Status)
		_, _, text = c.do("GET", path, "")
		require.Contains(t, text, `"status":"paid"`)
		for _, path := range []string{"/healthz", "/readyz", "/console", "/", "/assets/page.js", "/assets/latch.js"} {
			status, _, _ = c.do("GET", path, "")
			require.Equal(t, 200, status, path)
		}
	})
}

// TestFailures: a failure is not kept, unless the handler has called lock.Commit.
func TestFailures(t *testing.T) {
	c := start(t)
	for user, header := range map[string][]string{"failed": {"X-Fail", "500"}, "committed": {"X-Fail", "500", "X-Commit", "1"}} {
		for range 2 {
			status, _, _ := c.do("POST", "/orders", tea, append(header, "X-User-ID", user, "Idempotency-Key", "a")...)
			require.Equal(t, 500, status)
		}
		require.Len(t, c.orders(user), map[string]int{"failed": 2, "committed": 1}[user])
	}
	for _, body := range []string{"", "{}", `{"sku":"tea"}`, "[]", strings.Repeat(" ", 70<<10)} {
		status, _, _ := c.do("POST", "/orders", body, "X-User-ID", "refused", "Idempotency-Key", "a")
		require.Contains(t, []int{400, 413, 422}, status)
	}
	for _, header := range [][]string{{"X-User-ID", "refused", "X-Work", "31s"}, {"X-User-ID", "refused", "X-Commit", "1"}, {"X-User-ID", ""}} {
		status, _, _ := c.do("POST", "/orders", tea, header...)
		require.GreaterOrEqual(t, status, 400)
	}
}

// TestTry: what the page plays.
func TestTry(t *testing.T) {
	onBothStores(t, func(t *testing.T, c *client) {
		for guard, want := range map[string]struct {
			status int
			claims string
			orders int
		}{
			"none": {201, "", 2}, "naive": {503, "lost", 0}, "lock": {201, "lost, granted", 2},
			"idempotent": {201, "lost, granted", 1}, "both": {201, "lost, granted, granted", 1},
		} {
			form := url.Values{"once": {"k"}, "user": {guard}, "sku": {"tea"}, "quantity": {"1"}, "guard": {guard}, "work": {"0s"}, "lose": {"1"}}
			header := []string{"Content-Type", "application/x-www-form-urlencoded", "X-Burst", guard}
			status, got, text := c.do("POST", "/try", form.Encode(), header...)
			require.Equal(t, want.status, status, text)
			require.Equal(t, want.claims, got.Get("X-Claims"))
			form.Del("lose")
			_, _, _ = c.do("POST", "/try", form.Encode(), header...)
			require.Len(t, c.orders(guard), want.orders)
			_, _, state := c.do("GET", "/try?user="+guard+"&burst="+guard, "")
			require.Equal(t, want.orders, strings.Count(state, `"`)/2-3, state)
			require.Equal(t, guard != "naive", strings.Contains(state, `"left_ms":0,`), state)
		}
		status, _, _ := c.do("POST", "/try", "guard=both", "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "cross-site")
		require.Equal(t, 403, status)
	})
}

// TestShutdown: a running order ends, its answer arrives, and the desk ends well.
func TestShutdown(t *testing.T) {
	c := start(t)
	got := make(chan int, 1)
	go func() {
		status, _, _ := c.do("POST", "/orders", tea, "X-User-ID", "42", "X-Work", "1s")
		got <- status
	}()
	require.Eventually(t, func() bool {
		_, _, page := c.do("GET", "/console", "")
		return strings.Contains(page, "user=42")
	}, 20*time.Second, time.Millisecond)
	c.stop()
	require.Equal(t, 201, <-got)
}

func TestFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"at least twice -budget": {"-lease", "1s", "-budget", "1s"}, "unexpected argument": {"redis://localhost"}, "opening the store": {"-redis", "redis://127.0.0.1:1"},
	} {
		require.ErrorContains(t, desk.Run(t.Context(), args, os.Getenv, io.Discard), want)
	}
	for value, want := range map[string]string{"31s": "-work is at most 30s", "50": `invalid value "50" for flag -work`} {
		environment := map[string]string{"LATCH_WORK": value}
		err := desk.Run(t.Context(), nil, func(name string) string { return environment[name] }, io.Discard)
		require.ErrorContains(t, err, want)
	}
}

// TestSmall: a newcomer reads the desk in five minutes, and waits for nothing that it does not need.
func TestSmall(t *testing.T) {
	lines := 0
	for _, pattern := range []string{"*.go", "internal/page/*.go"} {
		files := must.Get(filepath.Glob(pattern))(t)
		for _, file := range files {
			if text, err := os.ReadFile(file); !strings.HasSuffix(file, "_test.go") {
				require.NoError(t, err)
				lines += bytes.Count(text, []byte("\n"))
			}
		}
	}
	require.LessOrEqual(t, lines, 600)
	out := must.Get(exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".").Output())(t)
	for path := range strings.FieldsSeq(string(out)) {
		require.Contains(t, []string{
			"github.com/httplatch/httplatch", "github.com/go-chi/chi/v5", "github.com/redis/go-redis/v9",
			"github.com/google/uuid", "github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys",
		}, path)
	}
	require.NotContains(t, string(out), "opentelemetry")
}
