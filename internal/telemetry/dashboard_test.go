package telemetry_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// dashboard is what of a Grafana dashboard has to be right for it to load.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Panels        []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ H, W, X, Y int }
		Datasource               struct{ Type, UID string }
		Targets                  []struct {
			RefID, Expr string
			Datasource  struct{ Type, UID string }
		}
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
}

// notOfTheChoice returns the metrics that a query asks for of other services and
// processes than those that the operator has chosen.
func notOfTheChoice(t *testing.T, query string) (names []string) {
	t.Helper()
	expr, err := parser.ParseExpr(query)
	require.NoError(t, err, query)
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		var chosen []string
		for _, m := range selector.LabelMatchers {
			if m.Value == "$"+m.Name {
				chosen = append(chosen, m.Name)
			}
		}
		if !slices.Contains(chosen, "job") || !slices.Contains(chosen, "instance") {
			names = append(names, selector.Name)
		}
		return nil
	})
	return names
}

// The twin: what leaves one of them out is caught, in each part of a query.
func TestQueriesOfOtherServicesAreCaught(t *testing.T) {
	const all = `job=~"$job",instance=~"$instance"`
	for query, names := range map[string][]string{
		`sum(lock_inflight{` + all + `})`:                                      nil,
		`sum(lock_inflight)`:                                                   {"lock_inflight"},
		`sum(lock_inflight{job=~"$job"})`:                                      {"lock_inflight"},
		`sum(lock_inflight{job=~"$job",instance=~"$job"})`:                     {"lock_inflight"},
		`sum(lock_inflight{` + all + `}) / sum(rate(lock_reaper_backlog[1m]))`: {"lock_reaper_backlog"},
	} {
		require.Equal(t, names, notOfTheChoice(t, query), query)
	}
}

func TestDashboardParses(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(monitoring, "dashboard.json"))
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.Title)
	require.NotEmpty(t, d.UID)
	require.Positive(t, d.SchemaVersion)
	require.Equal(t, "datasource", d.Templating.List[0].Type, "the operator who loads it chooses the data source, and edits nothing")
	var variables []string
	for _, v := range d.Templating.List[1:] {
		variables = append(variables, v.Name)
		var query struct{ Query string }
		require.NoError(t, json.Unmarshal(v.Query, &query))
		metric, label, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(query.Query, "label_values("), ")"), ", ")
		require.True(t, ok, query.Query)
		require.Equal(t, v.Name, label)
		requireScraped(t, metric)
	}
	require.Equal(t, []string{"job", "instance", "policy"}, variables)

	asGrafana := strings.NewReplacer("$__rate_interval", "1m", "$policy", ".*")
	ids, taken := make(map[int]bool), make(map[[2]int]string)
	queries := 0
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels %d", p.ID)
		ids[p.ID] = true
		require.NotEmpty(t, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], "%s lies over", p.Title)
				require.Less(t, x, 24)
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Description, p.Title)
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			queries++
			require.Equal(t, "${datasource}", target.Datasource.UID, p.Title)
			requireScraped(t, asGrafana.Replace(target.Expr))
			require.Empty(t, notOfTheChoice(t, asGrafana.Replace(target.Expr)), p.Title)
		}
	}
	require.Greater(t, queries, 20)
}

// The dashboard shows every metric that the docs have: a metric that no operator looks at
// is not worth its series.
func TestDashboardShowsEverything(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(monitoring, "dashboard.json"))
	require.NoError(t, err)
	for name := range readDocs(t) {
		require.Contains(t, string(text), name)
	}
}
