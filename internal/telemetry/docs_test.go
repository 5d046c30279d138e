package telemetry_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

// documented is a row of the table of metrics.
type documented struct {
	kind       string
	labels     []string
	means, act string
}

// readDocs returns the rows of docs/telemetry.md by their Prometheus names.
func readDocs(t *testing.T) map[string]documented {
	t.Helper()
	text, err := os.ReadFile("../../docs/telemetry.md")
	require.NoError(t, err)
	rows := make(map[string]documented)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		cells = cells[1:6]
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		rows[cells[0]] = documented{
			kind: cells[1], means: cells[3], act: cells[4],
			labels: strings.FieldsFunc(cells[2], func(r rune) bool { return r == ',' || r == ' ' }),
		}
	}
	require.Len(t, rows, 24)
	return rows
}

// everything is what a scrape has when all situations have come about.
func everything(t *testing.T) (families map[string]*dto.MetricFamily, moved map[string]bool) {
	t.Helper()
	families, moved = make(map[string]*dto.MetricFamily), make(map[string]bool)
	synctest.Test(t, func(t *testing.T) {
		te := newTelemetry(t)
		for _, s := range situations {
			before := te.scrape(t)
			s.makes(t, te)
			synctest.Wait() // a loss, for one, is counted after the work was notified
			for sample, value := range te.scrape(t) {
				if value != before[sample] {
					moved[familyOf(sample)] = true
				}
			}
		}
		for _, f := range gather(t, te) {
			families[f.GetName()] = f
		}
	})
	return families, moved
}

// Every metric in the docs exists, moves, and is as they say; and none is
// missing in the docs.
func TestDocsTellTheMetrics(t *testing.T) {
	docs := readDocs(t)
	families, moved := everything(t)
	for name, d := range docs {
		require.Contains(t, families, name, "in the docs, not in a scrape")
		f := families[name]
		require.Equal(t, d.kind, strings.ToLower(f.GetType().String()), name)
		labels := make(map[string]bool)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = true
			}
		}
		require.Len(t, labels, len(d.labels), "%s has %v", name, labels)
		for _, l := range d.labels {
			require.True(t, labels[l], "%s has no label %s", name, l)
		}
		require.NotEmpty(t, d.means, name)
		require.NotEmpty(t, d.act, name)
	}
	for name := range families {
		require.Contains(t, docs, name, "in a scrape, not in the docs")
		if name != "lock_inflight" && name != "idempotency_store_entries" && name != "idempotency_store_size_bytes" && name != "lock_reaper_backlog" &&
			name != "lock_reaper_size_bytes" && name != "lock_reaper_dropped_total" && name != "idempotency_unfinished" {
			require.True(t, moved[name], "%s has never moved", name)
		}
	}
}

// The gauges are back at nothing after each situation, so that they move is
// seen in the middle of some: of the claim, and of what is cleaned up.
func TestGaugesMove(t *testing.T) {
	for _, name := range []string{"claim", "unknown, and cleaned up"} {
		i := slices.IndexFunc(situations, func(s situation) bool { return s.name == name })
		happen(t, situations[i])
	}
}

// Every outcome that there is, is explained.
func TestDocsTellTheOutcomes(t *testing.T) {
	text, err := os.ReadFile("../../docs/telemetry.md")
	require.NoError(t, err)
	_, outcomes, found := strings.Cut(string(text), "### Outcomes")
	require.True(t, found)
	families, _ := everything(t)
	seen := make(map[string]bool)
	for _, name := range []string{"lock_acquisitions_total", "idempotency_requests_total"} {
		for _, m := range families[name].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" {
					seen[l.GetValue()] = true
				}
			}
		}
	}
	for outcome := range seen {
		require.Regexp(t, "(?m)^\\|.*`"+outcome+"`", outcomes)
	}
	require.Greater(t, len(seen), 12)
}
