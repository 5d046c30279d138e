package suite_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// server is a redis-server of a benchmark, and a connection of the benchmark's own to ask for
// the costs of contenders.
type server struct {
	addr   string
	client *redis.Client
}

func startServer(tb testing.TB) *server {
	tb.Helper()
	srv := redistest.Start(tb)
	return &server{srv.Addr(), srv.Client(tb)}
}

// flush empties the server: every contender begins with nothing.
func (s *server) flush(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, s.client.FlushAll(tb.Context()).Err())
}

// pause holds back every answer of the server for d. Connections stay, and commands wait.
func (s *server) pause(tb testing.TB, d time.Duration) {
	tb.Helper()
	require.NoError(tb, s.client.Do(tb.Context(), "CLIENT", "PAUSE", d.Milliseconds(), "ALL").Err())
}

// memory returns the server's used_memory.
func (s *server) memory(tb testing.TB) float64 {
	tb.Helper()
	info, err := s.client.InfoMap(tb.Context(), "memory").Result()
	require.NoError(tb, err)
	used, err := strconv.ParseFloat(info["Memory"]["used_memory"], 64)
	require.NoError(tb, err)
	return used
}

// commands counts the commands of a contender by name, without the calls of its scripts.
type commands map[string]int

func (c commands) total() (n int) {
	for _, times := range c {
		n += times
	}
	return n
}

// cycleCommands counts the commands of n lock cycles, after some that load scripts and open
// connections.
func (s *server) cycleCommands(tb testing.TB, l peer.Locker, n int) commands {
	tb.Helper()
	const callers = 64
	op := cycles(l, callers)
	times(tb, callers, callers, op)
	return s.monitor(tb, func() { times(tb, callers, n, op) })
}

// monitor counts the commands that reach the server over the network while f runs. INFO
// commandstats would also count the calls of scripts, as if each were a round trip.
func (s *server) monitor(tb testing.TB, f func()) commands {
	tb.Helper()
	var d net.Dialer
	conn, err := d.DialContext(tb.Context(), "tcp", s.addr)
	require.NoError(tb, err)
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	_, err = fmt.Fprint(conn, "MONITOR\r\n")
	require.NoError(tb, err)
	ok, err := in.ReadString('\n')
	require.NoError(tb, err)
	require.Equal(tb, "+OK\r\n", ok)
	type outcome struct {
		sent commands
		err  error
	}
	counted := make(chan outcome, 1)
	go func() {
		sent, err := count(in)
		counted <- outcome{sent, err}
	}()
	f()
	require.NoError(tb, s.client.Echo(tb.Context(), endOfCount).Err())
	o := <-counted
	require.NoError(tb, o.err)
	return o.sent
}

const endOfCount = "the benchmark has counted"

// handshake are the commands of new connections.
var handshake = map[string]bool{"hello": true, "client": true, "auth": true, "select": true, "ping": true}

// count reads lines such as
//
//	+1339518083.107412 [0 127.0.0.1:60866] "set" "user=42" "..."
//
// until the command that ends the count.
func count(in *bufio.Reader) (commands, error) {
	sent := commands{}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("MONITOR: %w", err)
		}
		_, rest, _ := strings.Cut(line, "[")
		from, command, ok := strings.Cut(rest, "] \"")
		if !ok {
			return nil, fmt.Errorf("MONITOR: %q", line)
		}
		name, _, _ := strings.Cut(command, `"`)
		name = strings.ToLower(name)
		switch {
		case name == "echo" && strings.Contains(command, endOfCount):
			return sent, nil
		case strings.HasSuffix(from, " lua"), handshake[name]:
		default:
			sent[name]++
		}
	}
}

// sentBy returns the commands of a cycle of each lock library, by the library's name.
func (s *server) sentBy(tb testing.TB, peers []peer.Peer) map[string]commands {
	tb.Helper()
	sent := map[string]commands{}
	for _, p := range peers {
		l, err := p.Open(tb.Context(), target(s.addr))
		require.NoError(tb, err)
		sent[p.Name] = s.cycleCommands(tb, l, 100)
		require.NoError(tb, l.Close(context.WithoutCancel(tb.Context())))
	}
	return sent
}
