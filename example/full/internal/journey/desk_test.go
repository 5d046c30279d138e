package journey_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// stores are those that the desk can be started with. The budget is one within which a busy
// machine answers, too.
var stores = []struct {
	name string
	args func(t *testing.T) []string
}{
	{"memory", func(*testing.T) []string { return nil }},
	{"Redis", func(t *testing.T) []string { t.Helper(); return []string{"-redis", redistest.Start(t).URL()} }},
	{"PostgreSQL", func(t *testing.T) []string { t.Helper(); return []string{"-postgres", pgtest.DatabaseURL(t)} }},
}

// build makes the program once for all tests.
var build = sync.OnceValues(func() (path string, err error) {
	if built, err = os.MkdirTemp("", "desk-"); err != nil {
		return "", err
	}
	path = filepath.Join(built, "desk")
	if out, err := exec.Command("go", "build", "-o", path, "../..").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// desk is the program, in a separate process.
type desk struct {
	url  string
	http *http.Client // straight to it, without a proxy

	toPay atomic.Int64 // orders that were placed to be paid, once
}

// startDesk starts a desk that ends with t, and checks that it ends well.
func startDesk(t *testing.T, args ...string) *desk {
	t.Helper()
	testmain.SkipIn(t, testmain.Quick, "builds and starts the desk")
	path, err := build()
	require.NoError(t, err)
	cmd := exec.Command(path, append(args, "-addr", "127.0.0.1:0", "-work", "5ms", "-budget", "10s")...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		tooLong := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer tooLong.Stop()
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.NoError(t, cmd.Wait(), &stderr)
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	at, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "listening on ")
	require.True(t, ok, line)
	direct := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(direct.CloseIdleConnections)
	return &desk{url: at, http: &http.Client{Transport: direct, Timeout: time.Minute}}
}

// send sends a request with its key, once.
func (d *desk) send(ctx context.Context, r request) (answer, error) {
	req, err := r.to(ctx, d.url)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Idempotency-Key", r.key)
	return read(d.http.Do(req))
}

// get reads what is at path, as JSON.
func (d *desk) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+path, nil)
	if err != nil {
		return err
	}
	got, err := read(d.http.Do(req))
	if err != nil {
		return err
	}
	if got.status != http.StatusOK {
		return fmt.Errorf("GET %s: %v", path, got)
	}
	return json.Unmarshal([]byte(got.body), into)
}

// order is one order at the desk, as its first answer has it.
type order struct {
	ID       string `json:"id"`
	User     string `json:"user"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

// orders are those that exist, oldest first.
func (d *desk) orders(ctx context.Context, user string) (all []order, err error) {
	return all, d.get(ctx, "/orders?user="+url.QueryEscape(user), &all)
}

// heldLocks are the keys of what is held, in flight or abandoned, without those of the
// naive lock, which stay for two minutes if a claim's answer did not arrive.
func (d *desk) heldLocks(ctx context.Context) (keys []string, err error) {
	var all []struct{ Key string }
	err = d.get(ctx, "/locks", &all)
	for _, l := range all {
		if !strings.HasPrefix(l.Key, "naive") {
			keys = append(keys, l.Key)
		}
	}
	return keys, err
}

// payments returns the number of payments that were made.
func (d *desk) payments(t *testing.T) (n int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/metrics", nil)
	require.NoError(t, err)
	got, err := read(d.http.Do(req))
	require.NoError(t, err)
	_, line, ok := strings.Cut(got.body, "\ndesk_payments_total ")
	require.True(t, ok, got.body)
	_, err = fmt.Sscan(line, &n)
	require.NoError(t, err)
	return n
}
