package latchcaddy_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

var orders = flag.Int("gateway.orders", 500, "how many orders `N` the journey through a Caddy places")

// TestJourney places orders through a Caddy of its own, in front of a shop in Node that is killed,
// late, streams, and cuts its answers off at every byte. Clients hang up, click twice, and repeat
// until they know. The configuration is loaded again all the time. Each intent is one order, and
// a customer whose order was placed is refused only if the answer of the shop was lost.
func TestJourney(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "runs processes for 8 s")
	j := newJourney(t)
	redis := redistest.Start(t)
	config := func(revision int) string {
		return fmt.Sprintf(`{
	latch {
		store %s
		prefix shop:
	}
}
%s {
	header X-Revision %d
	latch /orders {
		idempotent orders {
			scope {header.X-User}
			key   idempotency-key
			wait  1s
		}
	}
	reverse_proxy 127.0.0.1:%d {
		transport http {
			response_header_timeout 2s
		}
	}
}`, redis.URL(), j.site(), revision, j.shop.port)
	}
	j.startCaddy(config(0))
	reloads := j.reloadUntilDone(config)
	j.placeAll(*orders)
	t.Logf("%d orders, %d reloads, %d deaths of the shop, %d unknown outcomes, after which the client looked, and found no order %d times; memory of Caddy %.0f MB, of Redis %s",
		*orders, reloads(), j.shop.deaths.Load(), j.looked.Load(), j.absent.Load(), j.caddyMegabytes(), memoryOf(t, redis))
	require.Empty(t, j.wrong())
	require.Empty(t, j.refused, "placed, and refused, although no answer of the shop was lost")
	require.NotZero(t, j.looked.Load())
}

// TestJourneyThroughAPlainProxy has double orders: the journey can see them.
func TestJourneyThroughAPlainProxy(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "runs processes for 5 s")
	j := newJourney(t)
	j.startCaddy(fmt.Sprintf("{\n}\n%s {\nreverse_proxy 127.0.0.1:%d {\ntransport http {\nresponse_header_timeout 2s\n}\n}\n}", j.site(), j.shop.port))
	j.placeAll(100)
	require.NotEmpty(t, j.wrong())
}

// journey is a gateway, a shop behind it, and its customers.
type journey struct {
	t              testing.TB
	shop           *node
	caddy          *process.Program
	process        *exec.Cmd // of caddy
	port           int
	admin          string
	client         *http.Client
	looked, absent atomic.Int32

	mu      sync.Mutex
	refused []string
}

func newJourney(tb testing.TB) *journey {
	tb.Helper()
	port, err := process.FreePort()
	require.NoError(tb, err)
	transport := &http.Transport{MaxIdleConnsPerHost: customers}
	tb.Cleanup(transport.CloseIdleConnections)
	return &journey{t: tb, shop: startNode(tb), port: port, client: &http.Client{Transport: transport}}
}

func (j *journey) site() string { return fmt.Sprintf("http://127.0.0.1:%d", j.port) }

// startCaddy runs this test's program as Caddy, with the main of cmd/caddy.
func (j *journey) startCaddy(config string) {
	j.t.Helper()
	var err error
	j.caddy, err = process.New("caddy", process.Killed, nil)
	require.NoError(j.t, err)
	j.t.Cleanup(j.caddy.Remove)
	j.admin = filepath.Join(j.caddy.Dir, "admin.sock")
	file := filepath.Join(j.caddy.Dir, "Caddyfile")
	require.NoError(j.t, os.WriteFile(file, []byte(j.settings(config)), 0o600))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), caddyArguments+"=run --adapter caddyfile --config "+file, "XDG_DATA_HOME="+j.caddy.Dir, "XDG_CONFIG_HOME="+j.caddy.Dir)
	j.process = cmd
	require.NoError(j.t, j.caddy.Start(cmd, func(int) bool { return listens(j.port) }))
}

func (j *journey) settings(config string) string {
	return string(caddyfile.Format([]byte(strings.Replace(config, "{",
		"{\nadmin unix/"+j.admin+"\npersist_config off\nauto_https off\nlog default {\nlevel ERROR\noutput discard\n}\n", 1))))
}

func listens(port int) bool {
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// reloadUntilDone loads configurations by Caddy's own interface until its result is called, which
// returns how many were loaded.
func (j *journey) reloadUntilDone(config func(revision int) string) (stop func() int) {
	ctx, cancel := context.WithCancel(j.t.Context())
	done, loaded := make(chan error, 1), 0
	admin := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", j.admin)
	}, DisableKeepAlives: true}}
	go func() {
		for ctx.Err() == nil {
			r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, "http://127.0.0.1/load", strings.NewReader(j.settings(config(loaded+1))))
			if err == nil {
				r.Header.Set("Content-Type", "text/caddyfile")
				err = j.loaded(admin.Do(r))
			}
			if err != nil {
				done <- err
				return
			}
			loaded++
			time.Sleep(100 * time.Millisecond)
		}
		done <- nil
	}()
	return func() int {
		j.t.Helper()
		cancel()
		require.NoError(j.t, <-done)
		return loaded
	}
}

func (*journey) loaded(res *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(string(text))
	}
	return err
}

const customers = 16

// placeAll has customers place n orders.
func (j *journey) placeAll(n int) {
	j.t.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	failed := make(chan error, 2*customers)
	for range customers {
		group.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				clicks := 1
				if i%10 == 0 {
					clicks = 2
				}
				var both sync.WaitGroup
				for range clicks {
					both.Go(func() {
						if err := j.place(i); err != nil {
							select {
							case failed <- err:
							default:
							}
						}
					})
				}
				both.Wait()
			}
		})
	}
	group.Wait()
	close(failed)
	require.NoError(j.t, <-failed)
}

// plan is what the shop does with the first attempt at order i.
func plan(i int64) string {
	const longest = 110 // bytes of an answer in chunks
	switch roll := rand.IntN(1000); {
	case i%10 == 1:
		return fmt.Sprintf("cuts %s %d", []string{"length", "chunks"}[i/10%2], i/20%longest)
	case roll < 3:
		return "dies before"
	case roll < 6:
		return "dies after"
	case roll < 9:
		return "hangs"
	case roll < 40:
		return "fails"
	case roll < 100:
		return "slow"
	case roll < 150:
		return "streams"
	case roll < 350:
		return "chunks"
	}
	return "answers"
}

// place sends order i until it knows that there is one.
func (j *journey) place(i int64) error {
	deaths := j.shop.deaths.Load()
	do, late := plan(i), time.Now().Add(2*time.Minute)
	loses := do == "hangs" || do == "streams" || strings.HasPrefix(do, "cuts")
	for version := 0; time.Now().Before(late); version++ {
		key := fmt.Sprintf("%d-%d", i, version)
		for unknown := false; !unknown && time.Now().Before(late); {
			status, text := j.ask(i, key, do)
			do = "answers"
			switch {
			case status == 201 && text == "order "+key:
				return nil
			case status == 201:
				return fmt.Errorf("order %s has the answer %q", key, text)
			case strings.Contains(text, "#outcome-unknown"), strings.Contains(text, "#result-not-replayable"):
				unknown = true
			default: // no answer, a failure, or a request in flight
				time.Sleep(10 * time.Millisecond)
			}
		}
		j.looked.Add(1)
		placed, err := j.shop.has(key)                                                       // when the shop is up again
		if placed && !loses && i%10 != 0 && version == 0 && j.shop.deaths.Load() == deaths { // the other click has a plan, too
			j.mu.Lock()
			j.refused = append(j.refused, key)
			j.mu.Unlock()
		}
		if placed || err != nil {
			return err
		}
		j.absent.Add(1)
		do = "answers"
	}
	return fmt.Errorf("order %d is not placed after two minutes", i)
}

// ask sends one request; its status is 0 if there is no answer, or not all of it.
func (j *journey) ask(i int64, key, do string) (status int, text string) {
	ctx, cancel := j.t.Context(), func() {}
	if i%10 == 2 && do != "answers" {
		ctx, cancel = context.WithTimeout(ctx, 3*time.Millisecond)
	}
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, j.site()+"/orders", strings.NewReader(`{"sku":"tea"}`))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-User", "42")
	r.Header.Set("X-Do", do)
	res, err := j.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(body)
}

// wrong returns the intents that are not one order.
func (j *journey) wrong() []string {
	j.t.Helper()
	noted, err := os.ReadFile(j.shop.orders)
	require.NoError(j.t, err)
	placed := make(map[string]int)
	for key := range strings.FieldsSeq(string(noted)) {
		intent, _, _ := strings.Cut(key, "-")
		placed[intent]++
	}
	var all []string
	for intent, n := range placed {
		if n != 1 {
			all = append(all, fmt.Sprintf("%s: %d", intent, n))
		}
	}
	return all
}

// caddyMegabytes returns the memory of Caddy, 0 if it is not known.
func (j *journey) caddyMegabytes() float64 {
	out, _ := exec.Command("ps", "-o", "rss=", "-p", strconv.Itoa(j.process.Process.Pid)).Output()
	kilobytes, _ := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	return kilobytes / 1024
}

func memoryOf(tb testing.TB, s *redistest.Server) string {
	tb.Helper()
	for line := range strings.Lines(fmt.Sprint(s.Do(tb, "INFO", "memory"))) {
		if used, is := strings.CutPrefix(line, "used_memory_human:"); is {
			return strings.TrimSpace(used)
		}
	}
	return "unknown"
}

// node is the shop, which is started again whenever it has died.
type node struct {
	port   int
	orders string
	deaths atomic.Int32
}

const noNode = `no node: this test needs an upstream that is not Go.
Install it (apt-get install nodejs, brew install node, dnf install nodejs); npm comes with it, or brings it.`

func startNode(tb testing.TB) *node {
	tb.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		testmain.Unavailable(tb, noNode, err)
	}
	port, err := process.FreePort()
	require.NoError(tb, err)
	n := &node{port: port, orders: filepath.Join(tb.TempDir(), "orders")}
	script, err := filepath.Abs("testdata/shop.js")
	require.NoError(tb, err)
	program, err := process.New("node", process.Killed, nil)
	require.NoError(tb, err)
	start := func() error {
		cmd := exec.Command(path, script)
		cmd.Env = append(os.Environ(), fmt.Sprint("PORT=", port), "ORDERS="+n.orders)
		return program.Start(cmd, func(int) bool { return listens(port) })
	}
	require.NoError(tb, start())
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			if !program.Running() {
				n.deaths.Add(1)
				_ = start() // the next tick tries again
			}
		}
	}()
	tb.Cleanup(func() {
		close(ended)
		<-done
		program.Remove()
	})
	return n
}

// has asks the shop itself.
func (n *node) has(key string) (placed bool, err error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	for range 500 {
		var res *http.Response
		if res, err = client.Get(fmt.Sprintf("http://127.0.0.1:%d/%s", n.port, key)); err == nil {
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			return string(body) == "placed", nil
		}
		time.Sleep(10 * time.Millisecond) // it is starting
	}
	return false, err
}
