package suite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
)

// usage is what was spent since the start: by a server, its commands and this
// process. Times are in microseconds.
type usage struct {
	server   float64
	commands map[string]float64
	calls    map[string]float64
	client   float64
	mallocs  uint64
}

// usage looks at this process, in which the contenders run, and then at the server:
// under many callers its answer takes a while.
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
	for name, fields := range info["Commandstats"] {
		name = strings.TrimPrefix(name, "cmdstat_")
		for field := range strings.SplitSeq(fields, ",") {
			what, text, _ := strings.Cut(field, "=")
			to, ok := map[string]map[string]float64{"usec": u.commands, "calls": u.calls}[what]
			if !ok {
				continue
			}
			if to[name], err = strconv.ParseFloat(text, 64); err != nil {
				return usage{}, fmt.Errorf("INFO commandstats: %w", err)
			}
		}
	}
	return u, nil
}

// processCPU is what this process has spent, in microseconds.
func processCPU() (float64, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return micros(time.Duration(r.Utime.Nano() + r.Stime.Nano())), nil
}

// commands are those that a contender sends for one lock cycle, by name. Those
// that scripts call are in the time of their scripts.
type commands map[string]int

// cycleCommands are those of each peer.
func (b *bench) cycleCommands(ctx context.Context, srv *server, peers []peer.Peer) ([]commands, error) {
	sent := make([]commands, len(peers))
	for i, p := range peers {
		err := b.use(ctx, p, srv.addr, func(l peer.Locker) (err error) {
			sent[i], err = srv.cycleCommands(ctx, l, 100)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return sent, nil
}

// charged measures, and notes what each time has cost. Without sent, times are no
// lock cycles, and only CPU is noted.
func (b *bench) charged(ctx context.Context, srv *server, kase, who string, sent commands, run func() (load.Result, error)) (load.Result, error) {
	before, err := srv.usage(ctx)
	if err != nil {
		return load.Result{}, err
	}
	r, err := run()
	if err != nil {
		return r, err
	}
	after, err := srv.usage(ctx)
	if err != nil {
		return r, err
	}
	b.addCosts(kase, who, sent, before, after, len(r.Took)+r.Failed)
	return r, nil
}

// steady measures as load.Steady does, and notes what each time has cost.
func (b *bench) steady(
	ctx context.Context, srv *server, kase, who string, sent commands, callers int, warm, d time.Duration, op load.Op,
) (load.Result, error) {
	var looks []usage
	var failed error
	r, err := load.Steady(ctx, callers, warm, d, op, func() {
		u, err := srv.usage(ctx)
		looks, failed = append(looks, u), errors.Join(failed, err)
	})
	if err = errors.Join(err, failed); err != nil {
		return r, err
	}
	b.addCosts(kase, who, sent, looks[0], looks[1], r.Done)
	return r, nil
}

// addCosts notes what n times have cost, for each. Where nothing was done, there is
// no such figure.
func (b *bench) addCosts(kase, who string, sent commands, before, after usage, n int) {
	if n == 0 {
		return
	}
	each := func(metric string, all float64) { b.add(kase, who, metric, all/float64(n)) }
	each(CPU, after.server-before.server)
	each(ClientCPU, after.client-before.client)
	if sent == nil {
		return
	}
	spent, calls := 0.0, 0.0
	for name := range sent {
		spent += after.commands[name] - before.commands[name]
		calls += after.calls[name] - before.calls[name]
	}
	each(CommandCPU, spent)
	each(Trips, calls)
	if after.mallocs > 0 { // it was this process
		each(Allocs, float64(after.mallocs-before.mallocs))
	}
}
