package report_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/bench/internal/suite"
)

// run has figures of which one budget holds and one does not.
func run() *report.Run {
	s := &stats.Samples{}
	add := func(part, kase, who, metric string, values ...float64) {
		for _, v := range values {
			s.Add(stats.Name{Part: part, Case: kase, Who: who, Metric: metric}, v)
		}
	}
	add(suite.Cycles, suite.CallersCase(256), peer.Ours, suite.Rate, 100_000, 50_000, 120_000)
	add(suite.Cycles, suite.CallersCase(256), "bsm/redislock", suite.Rate, 20_000, 10_000, 20_000)
	add(suite.Cycles, suite.CallersCase(256), peer.AutoPipelined, suite.Rate, 80_000, 40_000, 80_000)
	add(suite.Cycles, suite.CallersCase(1024), peer.Ours, suite.Failed, 0, 3, 0)
	add(suite.Cycles, suite.CallersCase(1024), "bsm/redislock", suite.Failed, 0, 0, 0)
	add(suite.RoundTrips, suite.TripsOfCycle, peer.Ours, suite.Trips, 2)
	add(suite.InProcess, suite.OverBare, suite.GuardLock, suite.Nanos, 1201, 1150, 1220)
	add(suite.Crowd, suite.CallersCase(suite.Few), peer.Defaults, suite.Rate, 50_000, 50_000, 50_000)
	add(suite.Crowd, suite.CallersCase(suite.Many), peer.Defaults, suite.Rate, 45_000, 45_000, 45_000)
	add(suite.Crowd, suite.ColdBurst(suite.Many), peer.Defaults, suite.NotServed, 0, 3, 2)
	return &report.Run{Rounds: 3, Took: "1m", Samples: s, Machine: report.Machine{Cores: 2, Go: "go1.26"}}
}

// cells of the line of a table in which all words occur.
func line(t *testing.T, text string, words ...string) string {
	t.Helper()
next:
	for l := range strings.Lines(text) {
		for _, w := range words {
			if !strings.Contains(l, w) {
				continue next
			}
		}
		return strings.Join(strings.Fields(l), " ")
	}
	require.Fail(t, "no such line", "%q in\n%s", words, text)
	return ""
}

func TestPrint(t *testing.T) {
	var b strings.Builder
	require.NoError(t, run().Print(&b))
	text := b.String()
	require.Contains(t, text, "2 cores")
	require.Equal(t, "lock cycles, 256 callers per second httplatch 100,000 bsm/redislock 20,000 5 x 5 x .. 6 x >= 3 x held",
		line(t, text, "bsm/redislock"))
	require.Contains(t, line(t, text, peer.AutoPipelined), ">= 1.5 x missed")
	require.Equal(t, "lock cycles given up, 1024 callers failed httplatch 0 0 .. 3", line(t, text, "given up"))
	require.Equal(t, "commands sent, a lock cycle round trips httplatch 2 <= 2 held", line(t, text, "commands sent"))
	require.Equal(t, "guard on the memory store ns Lock 1,201 1,150 .. 1,220 <= 1200 missed", line(t, text, "guard on"))
	require.Equal(t, "lock cycles, 10000 callers per second httplatch, defaults 45,000 256 callers 50,000 0.90 x >= 0.8 x held",
		line(t, text, "10000 callers", "per second"))
	require.Contains(t, line(t, text, "at once"), "not served, % httplatch, defaults 2 0 .. 3 <= 1 missed")
	require.NotContains(t, text, "rueidislock", "what was not measured is left out")
	require.NotContains(t, text, "NaN")
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	require.NoError(t, run().Markdown(&b))
	text := b.String()
	require.Contains(t, line(t, text, "bsm/redislock", ">= 3 x"), "| 5 x | 5 x .. 6 x | >= 3 x | held |")
	require.Contains(t, text, "## cycles\n\n|  |  | per second | failed |\n|---|---|---|---|\n| 256 callers | httplatch | 100,000 |  |\n")
	require.NotContains(t, text, "## http")
	require.NotContains(t, text, "NaN")
}

// What make bench-plot reads is what make bench wrote.
func TestARunSurvivesItsFile(t *testing.T) {
	text, err := json.Marshal(run())
	require.NoError(t, err)
	var back report.Run
	require.NoError(t, json.Unmarshal(text, &back))
	var before, after strings.Builder
	require.NoError(t, run().Markdown(&before))
	require.NoError(t, back.Markdown(&after))
	require.Equal(t, before.String(), after.String())
}
