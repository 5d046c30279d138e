package faults_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
)

// outage is a fault of a server that all its clients meet.
type outage struct {
	name string
	args []string
	// fault makes the server do it and returns when it does.
	fault func(t *testing.T, server *redistest.Server) (over func())
	claim error // the error of a claim
}

var outages = []outage{
	{"stopped", nil, func(_ *testing.T, server *redistest.Server) func() {
		server.Stop()
		return server.Cont
	}, lock.ErrUnknown},
	{"writes paused", nil, func(t *testing.T, server *redistest.Server) func() {
		t.Helper()
		server.Do(t, "CLIENT", "PAUSE", 60_000, "WRITE")
		return func() { server.Do(t, "CLIENT", "UNPAUSE") }
	}, lock.ErrUnknown},
	{"all paused", nil, func(t *testing.T, server *redistest.Server) func() {
		t.Helper()
		// Even the end of the pause has to wait for its end, except from a client
		// that counts as a replica, as those that listen to MONITOR do.
		_, unpause := say(t, server, "MONITOR")
		server.Do(t, "CLIENT", "PAUSE", 60_000, "ALL")
		return func() {
			unpause("CLIENT UNPAUSE")
			server.Do(t, "PING")
		}
	}, lock.ErrUnknown},
	{"busy with a script", []string{"--lua-time-limit", "50"}, func(t *testing.T, server *redistest.Server) func() {
		t.Helper()
		answer, _ := say(t, server, `EVAL "while true do end" 0`)
		until(t, refusesWith("BUSY", server))
		return func() {
			server.Do(t, "SCRIPT", "KILL")
			require.Contains(t, answer(), "Script killed")
		}
	}, lock.ErrUnavailable},
	{"loading", []string{
		// 10 ms a key, and a look at its clients after each.
		"--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024", "--rdbcompression", "no",
	}, func(t *testing.T, server *redistest.Server) func() {
		t.Helper()
		server.Do(t, "EVAL", "for i = 1, 3000 do redis.call('SET', 'filler:' .. i, string.rep('x', 2048)) end", 0)
		server.Do(t, "SAVE")
		server.Kill()
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			server.Restart(t)
		}()
		until(t, refusesWith("LOADING", server))
		return func() {
			server.Do(t, "CONFIG", "SET", "key-load-delay", 0)
			<-loaded
		}
	}, lock.ErrUnavailable},
	{"a replica by now", nil, func(t *testing.T, server *redistest.Server) func() {
		t.Helper()
		server.Do(t, "REPLICAOF", "127.0.0.1", 1)
		return func() { server.Promote(t) }
	}, lock.ErrUnavailable},
}

// What a server that is there but does not serve may cost.
func TestServerOutages(t *testing.T) {
	t.Parallel()
	abreast(t, outages, func(o outage) string { return o.name }, func(t *testing.T, o outage) {
		t.Helper()
		requireOnePass(t, func() *ordeal {
			server := redistest.Start(t, o.args...)
			return newOrdeal(t, server, server.Addr(), o.claim, func() func() { return o.fault(t, server) })
		})
	})
}

// A master that refuses writes because it has lost its replica.
func TestServerWithTooFewReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	replica := redistest.StartReplica(t, server)
	server.Do(t, "CONFIG", "SET", "min-replicas-to-write", 1)
	good := func(n int) func() bool {
		return func() bool {
			return strings.Contains(fmt.Sprint(server.Do(t, "INFO", "replication")), fmt.Sprintf("min_slaves_good_slaves:%d\r", n))
		}
	}
	until(t, good(1))
	o := newOrdeal(t, server, server.Addr(), lock.ErrUnavailable, func() func() {
		replica.Kill()
		until(t, good(0))
		return func() {
			replica.Restart(t)
			until(t, good(1))
		}
	})
	o.reads = true
	o.requirePass(t)
}

// say sends one command on a new connection. When it returns the bytes
// are at the server. answer waits for the first line of the reply, and more
// sends another command.
func say(t *testing.T, server *redistest.Server, command string) (answer func() string, more func(command string)) {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", server.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	more = func(command string) {
		_, err := fmt.Fprintf(conn, "%s\r\n", command)
		require.NoError(t, err)
	}
	more(command)
	return func() string {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(soon)))
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		return strings.TrimSpace(line)
	}, more
}

// pong asks the server whether it is well.
func pong(server *redistest.Server) error {
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr(), Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, ReadTimeout: 300 * time.Millisecond,
	})
	defer func() { _ = client.Close() }()
	return client.Ping(context.Background()).Err()
}

func refusesWith(code string, server *redistest.Server) func() bool {
	return func() bool { return redis.HasErrorPrefix(pong(server), code) }
}
