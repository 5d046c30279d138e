package suite_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/report"
)

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
	before, err := srv.usage(b.Context())
	require.NoError(b, err)
	r, err := run()
	require.NoError(b, err)
	after, err := srv.usage(b.Context())
	require.NoError(b, err)
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
