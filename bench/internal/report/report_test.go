package report_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/report"
)

// results have figures of which one budget holds and one does not.
const results = `machine: 2 cores
goos: linux
rounds: medians of 3 rounds
BenchmarkCycles/round=1/case=256_callers/who=httplatch-2    1  100000 ops/s  3.7 server-µs/op
BenchmarkCycles/round=1/case=256_callers/who=bsm:redislock-2    1  20000 ops/s
BenchmarkCycles/round=2/case=256_callers/who=bsm:redislock-2    1  10000 ops/s
--- BENCH: BenchmarkCycles/round=2/case=256_callers/who=bsm:redislock-2
    a line of a log
BenchmarkCycles/round=2/case=256_callers/who=httplatch-2    1  50000 ops/s
BenchmarkCycles/round=3/case=256_callers/who=httplatch-2    1  120000 ops/s
BenchmarkCycles/round=3/case=256_callers/who=bsm:redislock-2    1  20000 ops/s
BenchmarkCycles/round=3/case=256_callers/who=bsm:redislock,_AutoPipeline-2    1  100000 ops/s
BenchmarkCycles/round=1/case=64_callers/who=httplatch-2    1  0 failed
BenchmarkCycles/round=1/case=256_callers/who=zeromicro:go-zero-2    1  3 failed
BenchmarkCycles/round=1/case=256_callers/who=httplatch-2    1  0 failed
BenchmarkCrowd/round=1/case=10000_callers/who=httplatch,_defaults    1  45000 ops/s
BenchmarkCrowd/round=1/case=256_callers/who=httplatch,_defaults    1  60000 ops/s
BenchmarkTrips/round=1/case=a_lock_cycle/who=httplatch    1  2 trips/op
BenchmarkTrips/round=1/case=a_lock_cycle/who=go-redsync:redsync    1  3 trips/op
BenchmarkOverload/round=1/case=5_C/who=New-2    1  0.95 goodput-of-C  2.5 commands/cycle  11.3 heap-MB
BenchmarkOverload/round=1/case=5_C/who=Open-2    1  0.98 goodput-of-C
BenchmarkOverload/round=1/case=20_C/who=New-2    1  0.5 goodput-of-C
`

func load(t *testing.T, files ...string) *report.Run {
	t.Helper()
	var paths []string
	for i, text := range files {
		file := filepath.Join(t.TempDir(), "results")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		if len(files) > 1 {
			file = []string{"before", "now"}[i] + "=" + file
		}
		paths = append(paths, file)
	}
	r, err := report.Load(paths...)
	require.NoError(t, err)
	return r
}

func written(t *testing.T, r *report.Run) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, r.Write(&b))
	return b.String()
}

func TestWrite(t *testing.T) {
	text := written(t, load(t, results))
	for _, line := range []string{
		"2 cores; medians of 3 rounds",
		// The busy machine of the second round is in no ratio. AutoPipeline has only the third.
		"| cycles/s, 256 callers | 100,000 |  | 5× (5–6) | 1.20× |  |  |  |  |  | bsm/redislock ≥ 3 held, bsm/redislock, AutoPipeline ≥ 1.50 missed |",
		"| server CPU, µs, 256 callers | 3.70 |  |  |  |  |  |  |  |  |  |",
		"| cycles given up, 256 callers | 0 |  |  |  |  |  | 3 |  |  |  |",
		"| cycles/s of 10000 callers over 256, defaults | 0.75× |  |  |  |  |  |  |  |  | ≥ 0.80 missed |",
		"| commands a cycle | 2 |  |  |  | 3 |  |  |  |  | ≤ 2 held |",
		"| 5 C | Open | 0.98 |  |  |  |  |  |  |  |  |  |  |  |  |  |  | goodput-of-C ≥ 0.90 held |",
		"| 5 C | New | 0.95 | 2.50 |  |  |  |  |  | 11.3 |  |  |  |  |  |  |  | goodput-of-C ≥ 0.90 held, commands/cycle ≤ 2.30 missed |",
		"| 20 C | New | 0.50 |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |",
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, "given up, 64 callers", "no contender gave up")
	require.NotContains(t, text, "| guards", "nothing of it was measured")
	require.NotContains(t, text, "NaN")
}

// The rounds of a second run are paired with each other.
func TestTwoRunsInAFile(t *testing.T) {
	again := strings.NewReplacer(" 20000 ops", " 10000 ops", " 10000 ops", " 5000 ops").Replace(results)
	require.Contains(t, written(t, load(t, results+again)), "| cycles/s, 256 callers | 100,000 |  | 8× (5–12) | 1.20× (1.20–1.20) |")
}

// RESULTS.md is not written from a part of the benchmarks.
func TestPageWantsAllItsRows(t *testing.T) {
	r := load(t, results)
	var b strings.Builder
	require.ErrorContains(t, r.Page(&b), "no figures for cycles/s, 1 caller; cycles/s, 8 callers; cycles/s, 1024 callers;")
	require.Empty(t, b.String())
	require.Contains(t, r.Missing("Cycles"), "cycles/s, 1 caller")
	require.NotContains(t, r.Missing("Cycles"), "cycles/s, 256 callers")
	require.Empty(t, r.Missing("Network"))
}

// RESULTS.md has the rows of the page, whether it is printed or condensed from more.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../RESULTS.md")
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, load(t, everyRow()).Page(&b))
	require.Equal(t, titles(string(page)), titles(b.String()))
	require.Less(t, strings.Count(b.String(), "\n"), 45)
}

func everyRow() string {
	var b strings.Builder
	for part, cases := range map[string][]string{
		"Cycles":    {"1 caller", "8 callers", "256 callers", "1024 callers"},
		"Latency":   {"1024 callers"},
		"Crowd":     {"256 callers", "10000 callers", "2500 callers that wait"},
		"Contended": {"64 callers of the holder's process", "1 caller in each of 4 other processes"},
		"Stalls":    {"256 callers, one reply in 1,000 late"},
		"HTTP":      {"closed loop, 64 connections", "open loop, 4000 requests:s"},
		"Trips":     {"a first request", "a replay", "a duplicate in the holder's process"},
		"InProcess": {"over the bare handler"},
		"Growth":    {"1000 live keys", "1000000 live keys"},
	} {
		for _, kase := range cases {
			for _, who := range []string{
				"httplatch", "httplatch, defaults", "Lock", "Lock, memory", "Lock, Redis", "Idempotent, memory", "Idempotent, memory, replay",
				"Idempotent, Redis", "Idempotent, Redis, replay", "Idempotent, first", "Idempotent, replay", "memory store",
				"SET NX + EVALSHA by hand, go-redis", "SET NX + EVALSHA by hand, rueidis",
			} {
				name := strings.ReplaceAll("Benchmark"+part+"/round=1/case="+kase+"/who="+who, " ", "_")
				b.WriteString(name + " 1 1 ops/s 1 p99-µs 1 server-µs/op 1 trips/op 1 B/waiting-caller 1 added-µs/op 1 B/key\n")
			}
		}
	}
	return b.String()
}

func titles(page string) (all []string) {
	for line := range strings.Lines(page) {
		if title, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(line, "|") {
			all = append(all, title)
		}
	}
	return all
}
