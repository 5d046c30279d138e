package suite_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/zeromicro/go-zero/core/logx"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

var (
	rounds = flag.Int("rounds", 5, "of every comparison")
	window = flag.Duration("window", 400*time.Millisecond, "how long one measurement lasts; a fifth of it runs before, unmeasured, at least 300 ms")
	small  = flag.Bool("small", false, "few callers, keys, receipts and kills, under the names of the many: for TestEveryPart")
)

// size returns full, or few with -small.
func size[T any](full, few T) T {
	if *small {
		return few
	}
	return full
}

// most returns n callers or connections, and at most 8 with -small.
func most(n int) int { return size(n, min(n, 8)) }

// silent is a log of go-redis, which has a line for each connection that is refused.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// TestMain discards the logs of contenders, which are no results: go-zero writes one a minute.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	redis.SetLogger(silent{})
	logx.Disable()
	os.Exit(mysqltest.Main(pgtest.Main(redistest.Main(m))).Run())
}

type contender struct {
	who string
	run func(b *testing.B)
}

// each makes a contender of every one of all.
func each[T any](all []T, who func(T) string, run func(b *testing.B, one T)) (contenders []contender) {
	for _, one := range all {
		contenders = append(contenders, contender{who(one), func(b *testing.B) { run(b, one) }})
	}
	return contenders
}

func peers(run func(b *testing.B, p peer.Peer)) []contender {
	return each(peer.All(), func(p peer.Peer) string { return p.Name }, run)
}

func inTurns(b *testing.B, round int, kase string, all []contender) {
	b.Helper()
	for _, i := range rand.Perm(len(all)) {
		measure(b, round, kase, all[i].who, all[i].run)
	}
}

// measure runs one benchmark. The garbage of others is collected before, unmeasured.
func measure(b *testing.B, round int, kase, who string, run func(b *testing.B)) {
	b.Helper()
	b.Run(fmt.Sprintf("round=%d/case=%s/who=%s", round+1, strings.ReplaceAll(kase, "/", ":"), strings.ReplaceAll(who, "/", ":")), func(b *testing.B) {
		runtime.GC()
		b.ReportMetric(0, "ns/op") // leaves it out: it would be that of the whole measurement
		run(b)
	})
}

func callersCase(n int) string {
	if n == 1 {
		return "1 caller"
	}
	return fmt.Sprintf("%d callers", n)
}

// target is the same for all contenders.
func target(addr string) peer.Target {
	return peer.Target{Addr: addr, Pool: 10 * runtime.GOMAXPROCS(0)}
}

func open(tb testing.TB, p peer.Peer, addr string) peer.Locker {
	tb.Helper()
	l := must.Get(p.Open(tb.Context(), target(addr)))(tb)
	tb.Cleanup(func() { require.NoError(tb, l.Close(context.WithoutCancel(tb.Context()))) })
	return l
}

// keys returns a function for the keys that callers take in turn. No caller takes another one's.
func keys(callers int) func(caller, n int) string {
	const each = 64
	all := make([]string, callers*each)
	for i := range all {
		all[i] = fmt.Sprintf("user=%d", i)
	}
	return func(caller, n int) string { return all[caller*each+n%each] }
}

// cycles are lock cycles of callers that take their own keys in turn.
func cycles(l peer.Locker, callers int) load.Op {
	key := keys(callers)
	return func(ctx context.Context, caller, n int) error { return peer.Cycle(ctx, l, key(caller, n)) }
}

// leastWarm is longer than the first trial of redisstore, which finds out in a quarter of a second
// whether a few commands share round trips. The next one begins four seconds later.
const leastWarm = 300 * time.Millisecond

// warm runs op unmeasured. Failures do not count: all connections at once may take longer than a call.
func warm(b *testing.B, callers int, op load.Op) {
	b.Helper()
	must.Get(load.Steady(b.Context(), callers, 0, max(*window/5, leastWarm), op, func() {}))(b)
}

func closed(b *testing.B, callers int, op load.Op) func() (load.Result, error) {
	b.Helper()
	return func() (load.Result, error) { return load.Closed(b.Context(), callers, *window, op) }
}

func times(tb testing.TB, callers, n int, op load.Op) load.Result {
	tb.Helper()
	r := must.Get(load.Times(tb.Context(), callers, n, op))(tb)
	return r
}

func reportTimes(b *testing.B, r load.Result) {
	b.Helper()
	b.ReportMetric(r.Rate(), report.Rate)
	b.ReportMetric(float64(r.Failed), report.Failed)
	b.ReportMetric(r.NotServed(), report.NotServed)
	if len(r.Took) == 0 {
		return
	}
	p50, p99 := r.Percentile(50), r.Percentile(99)
	b.ReportMetric(micros(p50), report.P50)
	b.ReportMetric(micros(p99), report.P99)
	b.ReportMetric(micros(r.Percentile(99.9)), report.P999)
	b.ReportMetric(float64(p99)/float64(p50), report.Tail)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// TestEveryPart runs each benchmark for a moment. Every row of the report has a figure, and
// every figure that is known is right. A machine that stands still for a second fails all calls that are
// under way, which is an error where a window is as short as this one, but not every time.
func TestEveryPart(t *testing.T) {
	for _, tt := range []struct {
		part, of string   // of: only such cases
		results  []string // patterns
	}{
		{"InProcess", "", nil},
		{"Trips", "", []string{
			`a_lock_cycle/who=SET_NX_\+_EVALSHA.* 2\.000 trips/op`,
			`a_lock_cycle/who=bsm:redislock-.* 2\.000 trips/op`, // two scripts, each of which calls two commands
			`a_first_request/who=fiber_idempotency,_Redis.* 3\.000 trips/op`,
			`a_replay/who=fiber_idempotency,_Redis.* 1\.000 trips/op`,
			`a_duplicate_in_the_holder's_process/who=Lock,_Redis.* 0 trips/op`,
		}},
		{"Cycles", "", nil},
		{"FewCallers", "", nil},
		{"Contended", "", nil},
		{"Latency", "", nil},
		{"Crowd", "", nil},
		{"Stalls", "", nil},
		{"HTTP", "", nil},
		{"Growth", "", nil},
		{"Scripts", "", nil},
		{"Transactions", "", nil},
		{"Receipts", "", nil},
		{"CleanUp", "", []string{
			`PostgreSQL,_an_hour_of_orders/who=httplatch.* end/half-time`, `MariaDB,_an_hour_of_orders/who=httplatch.* end/half-time`, `SQLite,_an_hour_of_orders/who=httplatch.* end/half-time`,
		}},
		{"Overload", "//case=(0.5_C|600_callers)$/who=Open", []string{`case=0\.5_C/who=Open.* goodput-of-C`, `case=600_callers/who=Open.* goodput-of-C`}},
		{"Network", "", []string{`case=near_again/who=New.* granted-p99-ms`}},
		{"Outage", "//case=1_s_of_silence/who=Open", []string{`case=1_s_of_silence/who=Open.* first-grant-ms`}},
	} {
		t.Run(tt.part, func(t *testing.T) {
			redistest.Shared(t) // skips where there is no server
			pgtest.DatabaseURL(t)
			mysqltest.Shared(t)
			var out []byte
			var missing []string
			for range 3 {
				if out, missing = runPart(t, tt.part, tt.of); out != nil && len(missing) == 0 {
					break
				}
			}
			require.Empty(t, missing)
			for _, pattern := range tt.results {
				require.Regexp(t, pattern, string(out))
			}
		})
	}
}

// runPart returns the results of a benchmark, nil if it has failed, and the rows without figures.
func runPart(t *testing.T, part, of string) (out []byte, missing []string) {
	t.Helper()
	self := must.Get(os.Executable())(t)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^$", "-test.bench=^Benchmark"+part+"$"+of, "-test.benchtime=1x",
		"-small", "-rounds=1", "-window=20ms", "-load=1s", "-then=2s", "-outages=1s", "-recovery=4s", "-play=3s")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("%v: %s", err, out)
		return nil, []string{err.Error()}
	}
	file := filepath.Join(t.TempDir(), part)
	require.NoError(t, os.WriteFile(file, out, 0o600))
	run := must.Get(report.Load(file))(t)
	return out, run.Missing(part)
}
