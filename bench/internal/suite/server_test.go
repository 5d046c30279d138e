package suite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/internal/testkit/must"
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
	return &server{srv.Addr(), redistest.Client(tb, srv)}
}

func (s *server) flush(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, s.client.FlushAll(tb.Context()).Err())
}

// pause holds back every answer of the server for d. Connections stay, and commands wait.
func (s *server) pause(tb testing.TB, d time.Duration) {
	tb.Helper()
	require.NoError(tb, s.client.Do(tb.Context(), "CLIENT", "PAUSE", d.Milliseconds(), "ALL").Err())
}

func (s *server) memory(tb testing.TB) float64 {
	tb.Helper()
	info := must.Get(s.client.InfoMap(tb.Context(), "memory").Result())(tb)
	used := must.Get(strconv.ParseFloat(info["Memory"]["used_memory"], 64))(tb)
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
	conn := must.Get(d.DialContext(tb.Context(), "tcp", s.addr))(tb)
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	must.Get(fmt.Fprint(conn, "MONITOR\r\n"))(tb)
	ok := must.Get(in.ReadString('\n'))(tb)
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

func (s *server) sentBy(tb testing.TB, peers []peer.Peer) map[string]commands {
	tb.Helper()
	sent := map[string]commands{}
	for _, p := range peers {
		l := must.Get(p.Open(tb.Context(), target(s.addr)))(tb)
		sent[p.Name] = s.cycleCommands(tb, l, 100)
		require.NoError(tb, l.Close(context.WithoutCancel(tb.Context())))
	}
	return sent
}

// usage is the cost since the start to a server, its commands and this process. Times are in
// microseconds.
type usage struct {
	server   float64
	commands map[string]float64
	calls    map[string]float64
	client   float64
	mallocs  uint64
}

// usage looks at this process, in which the contenders run, and then at the server: under
// many callers its answer takes a while.
func (s *server) usage(ctx context.Context) (usage, error) {
	client, err := processCPU()
	if err != nil {
		return usage{}, err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	info, err := s.client.InfoMap(ctx, "cpu", "commandstats").Result()
	if err != nil {
		return usage{}, err
	}
	u := usage{client: client, mallocs: m.Mallocs, commands: map[string]float64{}, calls: map[string]float64{}}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][name], 64)
		if err != nil {
			return usage{}, fmt.Errorf("INFO cpu: %w", err)
		}
		u.server += seconds * 1e6
	}
	for name, text := range info["Commandstats"] {
		fields := map[string]float64{}
		for field := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(field, "=")
			fields[key], _ = strconv.ParseFloat(value, 64)
		}
		name = strings.TrimPrefix(name, "cmdstat_")
		u.commands[name], u.calls[name] = fields["usec"], fields["calls"]
	}
	return u, nil
}

// processCPU returns the CPU time of this process, in microseconds.
func processCPU() (float64, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return micros(time.Duration(r.Utime.Nano() + r.Stime.Nano())), nil
}

// charged reports how often and how long run does it, and the cost of each time. Without
// sent, times are no lock cycles, and only CPU is reported.
func charged(b *testing.B, srv *server, sent commands, run func() (load.Result, error)) {
	b.Helper()
	before := must.Get(srv.usage(b.Context()))(b)
	r := must.Get(run())(b)
	after := must.Get(srv.usage(b.Context()))(b)
	reportCosts(b, sent, before, after, len(r.Took)+r.Failed)
	reportTimes(b, r)
}

// closedLoop reports times and costs of op, after a fifth of the window in which it only runs.
func closedLoop(b *testing.B, srv *server, sent commands, callers int, op load.Op) {
	b.Helper()
	warm(b, callers, op)
	charged(b, srv, sent, closed(b, callers, op))
}

// steady reports times and costs of op after a warm-up without a gap, as load.Steady does.
func steady(b *testing.B, srv *server, sent commands, callers int, warm, d time.Duration, op load.Op) {
	b.Helper()
	var looks []usage
	var failed error
	r, err := load.Steady(b.Context(), callers, warm, d, op, func() {
		u, err := srv.usage(b.Context())
		looks, failed = append(looks, u), errors.Join(failed, err)
	})
	require.NoError(b, errors.Join(err, failed))
	reportCosts(b, sent, looks[0], looks[1], r.Done)
	reportTimes(b, r)
}

// reportCosts reports the cost of each of n times. Where nothing was done, there is no such figure.
func reportCosts(b *testing.B, sent commands, before, after usage, n int) {
	b.Helper()
	if n == 0 {
		return
	}
	each := func(unit string, all float64) { b.ReportMetric(all/float64(n), unit) }
	each(report.ServerCPU, after.server-before.server)
	each(report.ClientCPU, after.client-before.client)
	if sent == nil {
		return
	}
	spent, calls := 0.0, 0.0
	for name := range sent {
		spent += after.commands[name] - before.commands[name]
		calls += after.calls[name] - before.calls[name]
	}
	each(report.CommandCPU, spent)
	each(report.Trips, calls)
	if after.mallocs > 0 { // it was this process
		each(report.Allocs, float64(after.mallocs-before.mallocs))
	}
}
