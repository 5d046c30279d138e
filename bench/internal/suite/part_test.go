package suite_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

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
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^$", "-test.bench=^Benchmark"+part+"$"+of, "-test.benchtime=1x",
		"-small", "-rounds=1", "-window=20ms", "-load=1s", "-then=2s", "-outages=1s", "-recovery=4s", "-play=3s")
	out, err = cmd.CombinedOutput()
	if err != nil {
		t.Logf("%v: %s", err, out)
		return nil, []string{err.Error()}
	}
	file := filepath.Join(t.TempDir(), part)
	require.NoError(t, os.WriteFile(file, out, 0o600))
	run, err := report.Load(file)
	require.NoError(t, err)
	return out, run.Missing(part)
}

// TestRefusalsSeesAFreeKey: callers that ask for a key without a holder do not count grants as refusals.
func TestRefusalsSeesAFreeKey(t *testing.T) {
	p, _ := peer.Named(peer.Bare)
	op := refusals(open(t, p, redistest.Shared(t).Addr()))
	require.ErrorContains(t, op(t.Context(), 0, 0), "a key that is held was granted")
	require.NoError(t, op(t.Context(), 0, 1))
}
