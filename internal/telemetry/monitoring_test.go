package telemetry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const monitoring = "../../example/full/monitoring"

// metricsOf returns the names of the metrics that a query asks for.
func metricsOf(t *testing.T, query string) []string {
	t.Helper()
	expr, err := parser.ParseExpr(query)
	require.NoError(t, err, query)
	var names []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			require.NotEmpty(t, selector.Name, query)
			names = append(names, selector.Name)
		}
		return nil
	})
	require.NotEmpty(t, names, query)
	return names
}

// requireScraped checks that a query asks for nothing that no scrape has.
func requireScraped(t *testing.T, query string) {
	t.Helper()
	known := readDocs(t) // which TestDocsTellTheMetrics holds to a scrape
	for _, name := range metricsOf(t, query) {
		if strings.HasPrefix(name, "http_server_") {
			require.Equal(t, "http_server_request_duration_seconds_count", name, "what the desk's own test looks for")
			continue
		}
		family := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if short := strings.TrimSuffix(name, suffix); known[short].kind == "histogram" {
				family = short
			}
		}
		require.Contains(t, known, family, query)
		require.Equal(t, family != name, known[family].kind == "histogram", "%s is a %s", name, known[family].kind)
	}
}

// ruleFile is all that a file of alerts may have.
type ruleFile struct {
	Groups []struct {
		Name     string
		Interval time.Duration
		Rules    []struct {
			Alert, Expr         string
			For                 time.Duration
			Labels, Annotations map[string]string
		}
	}
}

func TestAlertsParse(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join(monitoring, "alerts.yml")))(t)
	var rules ruleFile
	strict := yaml.NewDecoder(bytes.NewReader(text))
	strict.KnownFields(true)
	require.NoError(t, strict.Decode(&rules))
	docs := must.Get(os.ReadFile("../../docs/telemetry.md"))(t)
	tests := must.Get(os.ReadFile(filepath.Join(monitoring, "alerts_test.yml")))(t)
	runbook := must.Get(os.ReadFile("../../docs/runbook.md"))(t)
	n := 0
	for _, g := range rules.Groups {
		for _, rule := range g.Rules {
			n++
			requireScraped(t, rule.Expr)
			require.Contains(t, string(docs), "| `"+rule.Alert+"` |")
			require.Contains(t, string(tests), `alertname="`+rule.Alert+`"`, "and is seen firing")
			require.NotEmpty(t, rule.Labels["severity"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
			require.NoError(t, runbookOf(rule.Alert, rule.Annotations, runbook))
		}
	}
	require.Equal(t, 11, n)
}

// runbookOf says what is wrong with where the annotations of an alert lead to: a section of
// the runbook of its own, with text and steps.
func runbookOf(alert string, annotations map[string]string, runbook []byte) error {
	const page = "https://github.com/httplatch/httplatch/blob/main/docs/runbook.md#"
	anchor, ok := strings.CutPrefix(annotations["runbook_url"], page)
	if !ok {
		return fmt.Errorf("%s: runbook_url is %q", alert, annotations["runbook_url"])
	}
	for section := range strings.SplitSeq("\n"+string(runbook), "\n## ") {
		heading, text, _ := strings.Cut(section, "\n")
		switch {
		case anchor == "", strings.ToLower(heading) != anchor: // GitHub's anchor of one word
		case heading != alert:
			return fmt.Errorf("%s: runbook_url leads to %s", alert, heading)
		case !strings.Contains(text, "\n1. "):
			return fmt.Errorf("%s: its section has no steps", alert)
		default:
			return nil
		}
	}
	return fmt.Errorf("%s: the runbook has no section %q", alert, anchor)
}

// findPromtool skips t without promtool, and fails it in CI.
func findPromtool(t *testing.T) string {
	t.Helper()
	testmain.SkipIn(t, testmain.Quick, "starts promtool")
	path, err := exec.LookPath("promtool")
	if err != nil {
		testmain.Unavailable(t, "promtool is missing: the alerts were parsed, and not seen firing. It is a part of Prometheus: "+
			"apt-get install prometheus | brew install prometheus", err)
	}
	return path
}

// Prometheus' own tool takes the rules, and sees each of them fire.
func TestAlertsFire(t *testing.T) {
	promtool := findPromtool(t)
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		command := exec.Command(promtool, args...)
		command.Dir = monitoring
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
		t.Logf("%s", out)
	}
}

// dashboard has the fields without which Grafana does not load a dashboard.
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

func TestDashboardParses(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join(monitoring, "dashboard.json")))(t)
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
	text := must.Get(os.ReadFile(filepath.Join(monitoring, "dashboard.json")))(t)
	for name := range readDocs(t) {
		require.Contains(t, string(text), name)
	}
}
