package snippets_test

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFiguresOfTheBenchmark: the README and docs/choosing.md have the figures of
// bench/RESULTS.md, rounded.
func TestFiguresOfTheBenchmark(t *testing.T) {
	t.Parallel()
	const (
		cycles1   = "lock cycles, 1 callers | per second | httplatch | "
		cycles8   = "lock cycles, 8 callers | per second | httplatch | "
		cycles256 = "lock cycles, 256 callers | per second | httplatch | "
		inProcess = "duplicates refused, 64 callers of the holder's process | per second | httplatch | "
		elsewhere = "duplicates refused, 1 caller in each of 4 other processes | per second | httplatch | "
		closed    = "POST /orders, closed loop, 64 connections | per second | "
	)
	results := resultsOf(t, read(t, "../../bench/RESULTS.md"))
	for _, tt := range []struct {
		page, line string   // the beginning of the line that has
		medians    []string // the medians of these rows, and
		ratios     []string // the ratios of these
	}{
		{"README.md", "| `POST /orders` behind `Lock`, requests/s |", []string{
			closed + "Lock, memory | net/http, bare", closed + "Lock, Redis | net/http, bare",
		}, []string{
			closed + "Lock, memory | net/http, bare", closed + "Lock, Redis | net/http, bare",
			closed + "SET NX + EVALSHA by hand, go-redis | net/http, bare", closed + "SET NX + EVALSHA by hand, rueidis | net/http, bare",
		}},
		{"README.md", "| what a guard adds:", []string{
			"commands sent, a first request | round trips | Lock, Redis | ", "commands sent, a first request | round trips | Idempotent, Redis | ",
			"commands sent, a replay | round trips | Idempotent, Redis | ", "commands sent, a duplicate in the holder's process | round trips | Lock, Redis | ",
			"guard on the memory store | ns | Lock | ", "guard on the memory store | ns | Idempotent, first | ", "guard on the memory store | ns | Idempotent, replay | ",
		}, nil},
		{"README.md", "| lock cycles/s on Redis: 1, 8, 256 callers |", []string{
			cycles1 + "bsm/redislock", cycles8 + "bsm/redislock", cycles256 + "bsm/redislock",
		}, []string{
			cycles1 + "bsm/redislock", cycles8 + "bsm/redislock", cycles256 + "bsm/redislock", cycles256 + "bsm/redislock, AutoPipeline",
			cycles1 + "go-redsync/redsync", cycles8 + "go-redsync/redsync", cycles256 + "go-redsync/redsync",
			cycles1 + "redis/rueidislock", cycles8 + "redis/rueidislock", cycles256 + "redis/rueidislock",
			cycles1 + "SET NX + EVALSHA", cycles8 + "SET NX + EVALSHA", cycles256 + "SET NX + EVALSHA",
		}},
		{"README.md", "| duplicates refused/s:", []string{inProcess + "bsm/redislock", elsewhere + "bsm/redislock"}, []string{
			inProcess + "bsm/redislock", elsewhere + "bsm/redislock", inProcess + "go-redsync/redsync", elsewhere + "go-redsync/redsync",
			inProcess + "redis/rueidislock", elsewhere + "redis/rueidislock", inProcess + "SET NX + EVALSHA", elsewhere + "SET NX + EVALSHA",
		}},
		{"docs/choosing.md", "| server CPU for a cycle (claim and release), one caller |", []string{"lock cycles, 1 callers | server CPU, µs | httplatch | bsm/redislock"}, nil},
		{"docs/choosing.md", "| the same, 256 callers in one process", []string{"lock cycles, 256 callers | server CPU, µs | httplatch | bsm/redislock"}, nil},
		{"docs/choosing.md", "| cycles a second, server and 256 callers", []string{cycles256 + "bsm/redislock"}, nil},
	} {
		cells := figuresOf(t, read(t, "../../"+tt.page), tt.line)
		for _, row := range tt.medians {
			require.Contains(t, results, row)
			require.True(t, has(cells, results[row].median), "%s: %s: %v has no %v: %s", tt.page, tt.line, cells, results[row].median, row)
		}
		for _, row := range tt.ratios {
			require.Contains(t, results, row)
			require.True(t, has(cells, results[row].ratio), "%s: %s: %v has no %v: %s", tt.page, tt.line, cells, results[row].ratio, row)
		}
	}
}

type result struct{ median, ratio float64 }

// resultsOf are the rows of a table of results, named by their cells but for the numbers;
// nanoseconds are returned as microseconds.
func resultsOf(t *testing.T, text string) map[string]result {
	t.Helper()
	all := map[string]result{}
	for _, m := range regexp.MustCompile(`(?m)^\| (.+) \| (.+) \| (.+) \| ([\d,.]+) \| (.*) \|.*\| ([\d.]*)(?: x)? \| [^|]* \| [^|]* \| [^|]* \|$`).FindAllStringSubmatch(text, -1) {
		r := result{median: number(t, m[4])}
		if m[6] != "" {
			r.ratio = number(t, m[6])
		}
		if m[2] == "ns" {
			r.median /= 1000
		}
		all[strings.Join([]string{m[1], m[2], m[3], m[5]}, " | ")] = r
	}
	require.Greater(t, len(all), 100)
	return all
}

// figuresOf are the numbers in a row of a table, behind its first cell.
func figuresOf(t *testing.T, text, row string) (all []float64) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(row) + `.*$`).FindString(text)
	_, cells, ok := strings.Cut(strings.TrimPrefix(m, "| "), " | ")
	require.True(t, ok, "no row %q", row)
	for _, n := range regexp.MustCompile(`\d[\d,]*\d(?:\.\d+)?|\d(?:\.\d+)?`).FindAllString(cells, -1) {
		all = append(all, number(t, n))
	}
	return all
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	f, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	require.NoError(t, err)
	return f
}

// has reports whether one of the figures is f, rounded to a decimal or to half a percent;
// from 10 on it may be a whole number.
func has(figures []float64, f float64) bool {
	return slices.ContainsFunc(figures, func(figure float64) bool {
		return math.Abs(figure-f) <= 0.005*f || figure == math.Round(10*f)/10 || f >= 10 && math.Abs(figure-f) <= 0.5
	})
}
