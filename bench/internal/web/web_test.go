package web_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/web"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// No goleak: fiber's storages and clocks have goroutines that never end.
func TestMain(m *testing.M) { os.Exit(redistest.Main(m).Run()) }

func open(t *testing.T, d web.Desk, work func()) *web.Conn {
	t.Helper()
	svc := must.Get(d.Open(t.Context(), peer.Target{Addr: redistest.Shared(t).Addr(), Pool: 20}, work))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, svc.Close(ctx))
	})
	return dial(t, svc.Addr)
}

func dial(t *testing.T, addr string) *web.Conn {
	t.Helper()
	c := must.Get(web.Dial(t.Context(), addr))(t)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// served returns the status of c.Order. It asks again while the store is too slow, as on a busy
// machine.
func served(t *testing.T, c *web.Conn, user, key int) int {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		status, err := c.Order(user, key)
		if !assert.NoError(t, err) {
			return 0
		}
		if status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			return status
		}
	}
}

func remembers(d web.Desk) bool { return strings.Contains(strings.ToLower(d.Name), "idempoten") }

// A desk that does not guard would be an unfair comparison, and so would a bare
// one that does.
func TestWhatEachDeskRuns(t *testing.T) {
	for i, d := range web.All() {
		t.Run(d.Name, func(t *testing.T) {
			var made atomic.Int64
			c := open(t, d, func() { made.Add(1) })
			order := func(user, key int) {
				t.Helper()
				status := served(t, c, 1000*i+user, 1000*i+key)
				require.Equal(t, http.StatusCreated, status)
			}
			order(1, 1)
			order(1, 2)
			require.EqualValues(t, 2, made.Load())
			order(1, 1)
			if remembers(d) {
				require.EqualValues(t, 2, made.Load(), "a repeat is answered, not run")
			} else {
				require.EqualValues(t, 3, made.Load())
			}
		})
	}
}

// Fiber's guard lets duplicates wait instead of refusing them.
func TestDuplicatesAtOnceAreRefused(t *testing.T) {
	for i, name := range []string{web.LockMemory, web.LockRedis, web.ByHandGoRedis, web.ByHandRueidis, web.OnceMemory, web.OnceRedis} {
		t.Run(name, func(t *testing.T) {
			d, ok := web.Named(name)
			require.True(t, ok)
			begun, ended := make(chan struct{}), make(chan struct{})
			end := sync.OnceFunc(func() { close(ended) })
			svc := must.Get(d.Open(t.Context(), peer.Target{Addr: redistest.Shared(t).Addr(), Pool: 20}, func() {
				close(begun)
				<-ended
			}))(t)
			defer func() { require.NoError(t, svc.Close(context.Background())) }()
			defer end()
			first, second := dial(t, svc.Addr), dial(t, svc.Addr)
			answered := make(chan int, 1)
			go func() { answered <- served(t, first, 5000+i, 5000+i) }()
			select {
			case <-begun:
			case status := <-answered:
				require.Fail(t, "it was answered and has not run", status)
			}
			status := served(t, second, 5000+i, 5000+i)
			end()
			require.Equal(t, http.StatusConflict, status)
			require.Equal(t, http.StatusCreated, <-answered)
		})
	}
}
