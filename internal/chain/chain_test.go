package chain_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// roles are the services, the last one first.
var roles = []string{"provider", "ledger", "billing", "shop"}

// chain is four processes, the lines between them, and what became of the orders.
type chain struct {
	t      *testing.T
	lines  []*line
	deaths atomic.Int64
	redis  *redis.Client
	orders atomic.Int64

	mu      sync.Mutex
	doubled int
	wrong   []string
}

// startChain starts the services. env is their environment in addition.
func startChain(t *testing.T, oneInCut, oneInDies int, env ...string) *chain {
	t.Helper()
	server := redistest.Start(t)
	c := &chain{t: t, redis: server.Client(t)}
	next := ""
	for _, role := range roles {
		port, err := process.FreePort()
		require.NoError(t, err)
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		c.keepAlive(role, addr, slices.Concat(env, []string{
			roleVariable + "=" + role, addrVariable + "=" + addr, nextVariable + "=" + next,
			redisVariable + "=" + server.URL(), fmt.Sprint(deathsVariable, "=", oneInDies),
		}))
		l := startLine(t, addr, oneInCut)
		c.lines = append(c.lines, l)
		next = "http://" + l.Addr()
	}
	return c
}

// keepAlive starts a process, and starts it again whenever it has died.
func (c *chain) keepAlive(role, addr string, env []string) {
	c.t.Helper()
	program, err := process.New(role, process.Killed, nil)
	require.NoError(c.t, err)
	start := func() error {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), env...)
		return program.Start(cmd, func(int) bool { return listens(addr) })
	}
	require.NoError(c.t, start())
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			if !program.Running() {
				c.deaths.Add(1)
				_ = start() // the next tick tries again
			}
		}
	}()
	c.t.Cleanup(func() {
		close(ended)
		<-done
		program.Remove()
	})
}

func listens(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// faults returns how many connections were cut, and how many processes have died.
func (c *chain) faults() (n int) {
	for _, l := range c.lines {
		cuts, _, _ := l.figures()
		n += cuts
	}
	return n + int(c.deaths.Load())
}

const customers = 16

// order has customers order until there were so many faults. Each repeats until it is answered.
func (c *chain) order(until int) {
	c.t.Helper()
	shop := "http://" + c.lines[len(c.lines)-1].Addr()
	base := &http.Transport{DisableKeepAlives: true}
	customer := &http.Client{Transport: client.Transport(
		base, client.WithAttempts(1000), client.WithMaxWait(time.Hour), client.WithBudget(1000, 1000), client.WithBackoff(10*time.Millisecond, 200*time.Millisecond),
	)}
	var all sync.WaitGroup
	for range customers {
		all.Go(func() {
			for c.faults() < until {
				c.check(fmt.Sprint("order-", c.orders.Add(1)), func(order string) (*http.Response, error) {
					return customer.Post(shop, "text/plain", strings.NewReader(order))
				})
			}
		})
	}
	all.Wait()
}

// check orders, and counts the effects of the order when it is answered.
func (c *chain) check(order string, send func(order string) (*http.Response, error)) {
	resp, err := send(order)
	verdict := ""
	switch {
	case err != nil:
		verdict = err.Error()
	case resp.StatusCode != http.StatusCreated:
		verdict = resp.Status
	}
	if resp != nil {
		_ = resp.Body.Close()
	}
	doubled := false
	for _, role := range roles {
		n, err := c.redis.SCard(c.t.Context(), effectsOf(role, order)).Result()
		if err != nil || n == 0 {
			verdict += fmt.Sprint(" no effect in ", role, " ", err)
		}
		doubled = doubled || n > 1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if doubled {
		c.doubled++
	}
	if verdict != "" {
		c.wrong = append(c.wrong, order+": "+verdict)
	}
}

// report is a line for the page.
func (c *chain) report() string {
	cuts, covered, bytes := 0, 0, 0
	for _, l := range c.lines {
		n, at, of := l.figures()
		cuts, covered, bytes = cuts+n, covered+at, bytes+of
	}
	return fmt.Sprintf("%d orders, %d connections cut at %d of %d bytes, %d processes killed: %d orders with two effects",
		c.orders.Load(), cuts, covered, bytes, c.deaths.Load(), c.doubled)
}

// TestChainOfProcesses: an order has one effect in each of four services, wherever a connection
// breaks, and whenever a process dies.
func TestChainOfProcesses(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "runs processes for 4 s")
	t.Parallel()
	c := startChain(t, 6, 60)
	c.order(*faults)
	t.Log(c.report())
	require.Empty(t, c.wrong)
	require.Zero(t, c.doubled)
}

// TestChainOfProcessesWithNewKeys is the twin: a service makes a new key for each call.
func TestChainOfProcessesWithNewKeys(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "runs processes for 4 s")
	t.Parallel()
	c := startChain(t, 6, 60, newKeyVariable+"=1")
	c.order(24)
	t.Log(c.report())
	require.NotZero(t, c.doubled, "this campaign can see two effects")
}
