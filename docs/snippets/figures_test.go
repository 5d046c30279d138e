package snippets_test

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFiguresOfTheBenchmark: the README and docs/choosing.md have the figures of
// bench/RESULTS.md, rounded.
func TestFiguresOfTheBenchmark(t *testing.T) {
	t.Parallel()
	const (
		cycles8   = "cycles/s, 8 callers | "
		cycles256 = "cycles/s, 256 callers | "
		trips     = "round trips of "
	)
	results := resultsOf(t, read(t, "../../bench/RESULTS.md"))
	for _, tt := range []struct {
		page, line string   // the beginning of the row or the paragraph that has
		figures    []string // the figures of these rows and columns
	}{
		{"README.md", "A guard adds", []string{
			trips + "a first request, Lock, Redis | median", trips + "a first request, Idempotent, Redis | median",
			trips + "a replay, Idempotent, Redis | median", trips + "a duplicate in the holder's process, Lock, Redis | median",
			"µs in memory, Lock | median", "µs in memory, Idempotent, first | median",
		}},
		{"README.md", "| 8 callers |", []string{cycles8 + "httplatch", cycles8 + "bsm/redislock", cycles8 + "go-redsync/redsync", cycles8 + "redis/rueidislock", cycles8 + "SET NX + EVALSHA"}},
		{"README.md", "| 256 callers |", []string{cycles256 + "httplatch", cycles256 + "bsm/redislock", cycles256 + "go-redsync/redsync", cycles256 + "redis/rueidislock", cycles256 + "SET NX + EVALSHA"}},
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

// The README has the figures of bench/day.json.
func TestFiguresOfTheDay(t *testing.T) {
	t.Parallel()
	type day struct {
		Name               string
		TTL, Longest       time.Duration
		Rate               float64
		Orders             int
		LockedOut, Minutes float64
	}
	var all []day
	for line := range strings.Lines(read(t, "../../bench/day.json")) {
		var d day
		require.NoError(t, json.Unmarshal([]byte(line), &d))
		all = append(all, d)
	}
	const paragraph = "In a simulated day" // begins with this
	for _, tt := range []struct {
		day     day
		figures func(day) []float64
	}{
		{day{Name: "the incident's policy", TTL: 2 * time.Hour, Rate: 1000, Orders: 1_000_000}, func(d day) []float64 { return []float64{d.LockedOut, d.Minutes} }},
		{day{Name: "httplatch, Lock", TTL: 30 * time.Second, Rate: 1000, Orders: 1_000_000}, func(d day) []float64 {
			require.InDelta(t, 1, d.LockedOut, 0, "the README says one customer")
			return []float64{math.Round(d.Longest.Seconds())}
		}},
	} {
		i := slices.IndexFunc(all, func(d day) bool {
			return d.Name == tt.day.Name && d.TTL == tt.day.TTL && d.Rate == tt.day.Rate && d.Orders == tt.day.Orders
		})
		require.GreaterOrEqual(t, i, 0, "%+v", tt.day)
		cells := figuresOf(t, read(t, "../../README.md"), paragraph)
		for _, f := range tt.figures(all[i]) {
			require.True(t, has(cells, f), "%s: %v has no %v: %+v", paragraph, cells, f, all[i])
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

// figuresOf are the numbers in a paragraph, or in a row of a table behind its first cell.
func figuresOf(t *testing.T, text, begins string) (all []float64) {
	t.Helper()
	_, cells, ok := strings.Cut(text, "\n"+begins)
	require.True(t, ok, "nothing begins with %q", begins)
	end := "\n\n"
	if strings.HasPrefix(begins, "|") {
		end = "\n"
	}
	cells, _, _ = strings.Cut(cells, end)
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
