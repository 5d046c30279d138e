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
		cycles1   = "cycles/s, 1 caller | "
		cycles8   = "cycles/s, 8 callers | "
		cycles256 = "cycles/s, 256 callers | "
		inProcess = "duplicates refused/s, 64 callers of the holder's process | "
		elsewhere = "duplicates refused/s, 1 caller in each of 4 other processes | "
		orders    = "POST /orders per second, "
		trips     = "round trips of "
		bare      = " | bare handler"
	)
	results := resultsOf(t, read(t, "../../bench/RESULTS.md"))
	for _, tt := range []struct {
		page, line string   // the beginning of the line that has
		figures    []string // the figures of these rows and columns
	}{
		{"README.md", "| `POST /orders` behind `Lock`, requests/s |", []string{
			orders + "Lock, memory | median", orders + "Lock, Redis | median", orders + "Lock, memory" + bare, orders + "Lock, Redis" + bare,
			orders + "SET NX + EVALSHA by hand, go-redis" + bare, orders + "SET NX + EVALSHA by hand, rueidis" + bare,
		}},
		{"README.md", "| what a guard adds:", []string{
			trips + "a first request, Lock, Redis | median", trips + "a first request, Idempotent, Redis | median",
			trips + "a replay, Idempotent, Redis | median", trips + "a duplicate in the holder's process, Lock, Redis | median",
			"µs in memory, Lock | median", "µs in memory, Idempotent, first | median", "µs in memory, Idempotent, replay | median",
		}},
		{"README.md", "| lock cycles/s on Redis: 1, 8, 256 callers |", []string{
			cycles1 + "httplatch", cycles8 + "httplatch", cycles256 + "httplatch",
			cycles1 + "bsm/redislock", cycles8 + "bsm/redislock", cycles256 + "bsm/redislock", cycles256 + "bsm/redislock, AutoPipeline",
			cycles1 + "go-redsync/redsync", cycles8 + "go-redsync/redsync", cycles256 + "go-redsync/redsync",
			cycles1 + "redis/rueidislock", cycles8 + "redis/rueidislock", cycles256 + "redis/rueidislock",
			cycles1 + "SET NX + EVALSHA", cycles8 + "SET NX + EVALSHA", cycles256 + "SET NX + EVALSHA",
		}},
		{"README.md", "| duplicates refused/s:", []string{
			inProcess + "httplatch", elsewhere + "httplatch",
			inProcess + "bsm/redislock", elsewhere + "bsm/redislock", inProcess + "go-redsync/redsync", elsewhere + "go-redsync/redsync",
			inProcess + "redis/rueidislock", elsewhere + "redis/rueidislock", inProcess + "SET NX + EVALSHA", elsewhere + "SET NX + EVALSHA",
		}},
		{"docs/choosing.md", "| server CPU for a cycle (claim and release), one caller |", []string{"server CPU, µs, 1 caller | httplatch"}},
		{"docs/choosing.md", "| the same, 256 callers in one process", []string{"server CPU, µs, 256 callers | httplatch"}},
		{"docs/choosing.md", "| cycles a second, server and 256 callers", []string{cycles256 + "httplatch"}},
	} {
		cells := figuresOf(t, read(t, "../../"+tt.page), tt.line)
		for _, row := range tt.figures {
			require.Contains(t, results, row)
			require.True(t, has(cells, results[row]), "%s: %s: %v has no %v: %s", tt.page, tt.line, cells, results[row], row)
		}
	}
}

// resultsOf returns the cells of tables, by the first cell of their row and by their column: of
// a ratio with its spread, the ratio.
func resultsOf(t *testing.T, text string) map[string]float64 {
	t.Helper()
	all, header := map[string]float64{}, []string(nil)
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " |")
		switch {
		case !strings.HasPrefix(line, "|"):
			header = nil
			continue
		case header == nil:
			header = cells
			continue
		}
		for i, cell := range cells[1:] {
			if figure := regexp.MustCompile(`^ [\d,.]+`).FindString(cell); figure != "" {
				all[strings.TrimSpace(cells[0])+" | "+strings.TrimSpace(header[i+1])] = number(t, strings.TrimSpace(figure))
			}
		}
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
