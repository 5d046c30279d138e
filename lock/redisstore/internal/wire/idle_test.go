package wire_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// counted is a connection that counts itself while it is open.
type counted struct {
	net.Conn

	open *atomic.Int32
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// spike makes a server use many connections at once.
func spike(t *testing.T, s *wire.Server) {
	t.Helper()
	var all sync.WaitGroup
	for i := range 400 {
		all.Go(func() { assert.NoError(t, ask(t.Context(), t, s, strconv.Itoa(i), false)) })
	}
	all.Wait()
}

// After a spike, the connections that no command needs any more are closed, although there are always
// commands: each of them for itself, a minute after its last command.
func TestConnectionsOfASpikeAreClosedUnderTraffic(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{"a command every 20 s": 20 * time.Second, "always a command": 0} {
		t.Run(name, virtual.Test(func(t *testing.T) {
			f := &fake{way: always(10 * time.Millisecond)}
			var open atomic.Int32
			s := dialed(t, func(ctx context.Context) (net.Conn, time.Duration, error) {
				nc, took, err := f.dial(ctx)
				open.Add(1)
				return &counted{Conn: nc, open: &open}, took, err
			})
			spike(t, s)
			require.Greater(t, open.Load(), int32(3))
			for began := time.Now(); time.Since(began) < 70*time.Second; time.Sleep(pause) {
				require.NoError(t, ask(t.Context(), t, s, "x", false))
			}
			require.LessOrEqual(t, open.Load(), int32(2))
		}))
	}
}

// The server closes all connections of a store under traffic, also one without a command for a while. The
// store has noticed the end of that one, and loses no command to it.
func TestConnectionClosedUnderTrafficCostsNoCommand(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		f := &fake{way: always(7001 * time.Microsecond)}
		s := over(t, f)
		traffic := func(d time.Duration) {
			for began := time.Now(); time.Since(began) < d; {
				assert.NoError(t, ask(t.Context(), t, s, "x", false))
			}
		}
		var both sync.WaitGroup
		both.Go(func() { traffic(time.Second) })
		both.Go(func() { traffic(5 * time.Second) })
		both.Wait()
		require.Len(t, f.connections(), 2)
		for _, nc := range f.connections() {
			require.NoError(t, nc.Close())
		}
		synctest.Wait()
		require.Error(t, ask(t.Context(), t, s, "lost", false))
		require.NoError(t, ask(t.Context(), t, s, "x", false))
	})
}

// The connections become silent after Close has begun. No command is queued to find out whether the server
// answers: it would keep the server at work behind Close.
func TestCloseOfASilentServerLeavesNothing(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		f := &fake{}
		s := warm(t, f)
		f.mu.Lock()
		f.way = always(time.Minute)
		f.mu.Unlock()
		go func() { assert.Error(t, ask(t.Context(), t, s, "x", false)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		s.Close(ctx)
		inFlight, queued := s.Pending()
		require.Zero(t, inFlight)
		require.Zero(t, queued)
		time.Sleep(time.Minute)
	})
}

// What ends a connection for large commands has ended the idle ones, too: the next command has a new one.
func TestLargeCommandAfterALostOneHasANewConnection(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		f := &fake{way: always(time.Millisecond)}
		s := over(t, f)
		send := func() error { return ask(t.Context(), t, s, strings.Repeat("x", 20<<10), false) }
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { assert.NoError(t, send()) })
		}
		both.Wait()
		for _, nc := range f.connections() {
			_ = nc.Close()
		}
		require.Error(t, send())
		require.NoError(t, send())
	})
}

// A connection that was idle while the server moved gets no command: the former master may still answer.
func TestIdleServerThatMoves(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		s, _, present, move := moving(t)
		names := []string{"x", strings.Repeat("x", 20<<10)}
		for _, name := range names {
			require.NoError(t, ask(t.Context(), t, s, name, true))
		}
		time.Sleep(100 * time.Millisecond)
		move()
		time.Sleep(2 * time.Second)
		for _, name := range names {
			require.NoError(t, ask(t.Context(), t, s, name, true))
		}
		require.Equal(t, names, present.arrived())
	})
}
