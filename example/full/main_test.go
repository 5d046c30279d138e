package main_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	desk "github.com/httplatch/httplatch/example/full"
	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/internal/testkit/walk"
)

func TestMain(m *testing.M) {
	testmain.AtOnce(4)
	goleak.VerifyTestMain(testmain.After(walk.Main(browser.Main(mysqltest.Main(redistest.Main(m)))), removeBuilt))
}

// built is the directory of the program that tests start, "" if none did.
var built string

func removeBuilt() {
	if built != "" {
		_ = os.RemoveAll(built)
	}
}

type client struct {
	t    *testing.T
	url  string
	http *http.Client
}

func newClient(t *testing.T, url string) *client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, url: url, http: &http.Client{Transport: transport}}
}

type reply struct {
	status int
	header http.Header
	body   string
}

const order = `{"sku":"tea","quantity":1}`

// try sends a request. Its error means that there was no whole answer.
func (c *client) try(method, path, body string, header ...string) (reply, error) {
	return c.send(c.t.Context(), method, path, body, header...)
}

func (c *client) send(ctx context.Context, method, path, body string, header ...string) (reply, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text)}, err
}

// background sends a request, whose answer comes when it does. Without a whole one, it has the error.
func (c *client) background(method, path, body string, header ...string) <-chan reply {
	answer := make(chan reply, 1)
	go func() {
		got, err := c.try(method, path, body, header...)
		if err != nil {
			got.body = err.Error()
		}
		answer <- got
	}()
	return answer
}

func (c *client) do(method, path, body string, header ...string) reply {
	c.t.Helper()
	got, err := c.try(method, path, body, header...)
	require.NoError(c.t, err)
	return got
}

func (c *client) order(user string, header ...string) reply {
	c.t.Helper()
	return c.do(http.MethodPost, "/orders", order, append(header, "X-User-ID", user, "Content-Type", "application/json")...)
}

// hang submits an order of user that ends when leave is called and its client is
// gone. It returns when the order is being worked on.
func (c *client) hang(user string, header ...string) (leave func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := c.send(ctx, http.MethodPost, "/orders", order, append(header, "X-User-ID", user)...)
		left <- err
	}()
	c.awaitLock("user=" + user)
	return func() {
		c.t.Helper()
		cancel()
		require.ErrorIs(c.t, <-left, context.Canceled)
	}
}

func (c *client) pay(id string) reply {
	c.t.Helper()
	return c.do(http.MethodPost, "/orders/"+id+"/pay", "", "Idempotency-Key", rand.Text())
}

// storm submits n orders at once, the ith as user(i).
func (c *client) storm(n int, user func(i int) string, header ...string) []reply {
	c.t.Helper()
	replies, errs := make([]reply, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			replies[i], errs[i] = c.try(http.MethodPost, "/orders", order, append([]string{"X-User-ID", user(i)}, header...)...)
		})
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(c.t, err)
	}
	return replies
}

type record struct {
	ID, User, SKU string
	Quantity      int
	Status        string
	Fence         int64
}

// orders lists the orders of user, newest last.
func (c *client) orders(user string) []record {
	c.t.Helper()
	got := c.do(http.MethodGet, "/orders?user="+queryEscape(user), "")
	require.Equal(c.t, http.StatusOK, got.status, got.body)
	var all []record
	require.NoError(c.t, json.Unmarshal([]byte(got.body), &all))
	return all
}

type heldLock struct {
	Key, State, Token, Owner string
	LeaseMS                  *int64 `json:"lease_ms"`
}

func (c *client) locks() []heldLock {
	c.t.Helper()
	got := c.do(http.MethodGet, "/locks", "")
	require.Equal(c.t, http.StatusOK, got.status, got.body)
	var all []heldLock
	require.NoError(c.t, json.Unmarshal([]byte(got.body), &all))
	return all
}

// awaitLock returns when there is a lock on key.
func (c *client) awaitLock(key string) heldLock {
	c.t.Helper()
	var found heldLock
	require.Eventually(c.t, func() bool {
		for _, l := range c.locks() {
			if l.Key == key {
				found = l
				return true
			}
		}
		return false
	}, 30*time.Second, time.Millisecond)
	return found
}

// requireProblem checks what every refusal of the desk has in common.
func requireProblem(t *testing.T, status int, got reply) {
	t.Helper()
	require.Equal(t, status, got.status, got.body)
	require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
	require.Equal(t, "no-store", got.header.Get("Cache-Control"))
	var body struct {
		Title  string
		Status int
	}
	require.NoError(t, json.Unmarshal([]byte(got.body), &body), got.body)
	require.Equal(t, status, body.Status)
	require.NotEmpty(t, body.Title)
}

type running struct {
	*client
	signal context.CancelFunc // what SIGTERM does
	ended  <-chan error
	stderr *bytes.Buffer // to be read when it has ended
}

// startDesk runs a desk until t ends, and checks that it ends well.
func startDesk(t *testing.T, args ...string) *running {
	t.Helper()
	return startWith(t, func(ctx context.Context, stdout, stderr io.Writer) error {
		return desk.Run(ctx, append(args, "-addr", "127.0.0.1:0"), func(string) string { return "" }, stdout, stderr)
	})
}

// patiently has a desk use the Redis at url with a budget within which a busy
// machine answers too.
func patiently(url string, args ...string) []string {
	return slices.Concat([]string{"-redis", url, "-budget", "10s"}, args)
}

func startWith(t *testing.T, run func(ctx context.Context, stdout, stderr io.Writer) error) *running {
	t.Helper()
	ctx, signal := context.WithCancel(context.Background())
	stdout, out := io.Pipe()
	ended, result := make(chan error, 1), make(chan error, 1)
	var stderr bytes.Buffer
	go func() {
		err := run(ctx, out, &stderr)
		_ = out.CloseWithError(io.EOF)
		ended <- err
		result <- err
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	t.Cleanup(func() {
		signal()
		require.NoError(t, <-result, stderr.String())
	})
	require.NoError(t, err, stderr.String())
	url, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "listening on ")
	require.True(t, ok, line)
	return &running{newClient(t, url), signal, ended, &stderr}
}
