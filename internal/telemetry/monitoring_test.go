package telemetry_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const monitoring = "../../example/monitoring"

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
		Name  string
		Rules []struct {
			Alert, Expr         string
			For                 time.Duration
			Labels, Annotations map[string]string
		}
	}
}

func TestAlertsParse(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(monitoring, "alerts.yml"))
	require.NoError(t, err)
	var rules ruleFile
	strict := yaml.NewDecoder(bytes.NewReader(text))
	strict.KnownFields(true)
	require.NoError(t, strict.Decode(&rules))
	docs, err := os.ReadFile("../../docs/telemetry.md")
	require.NoError(t, err)
	tests, err := os.ReadFile(filepath.Join(monitoring, "alerts_test.yml"))
	require.NoError(t, err)
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
		}
	}
	require.Equal(t, 8, n)
}

// findPromtool skips t without promtool, and fails it in CI.
func findPromtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	switch {
	case err == nil:
		return path
	case os.Getenv("CI") == "true":
		t.Fatalf("promtool, which is a part of Prometheus, is missing, and CI=true: %v", err)
	}
	t.Skipf("SKIPPED, promtool is missing: the alerts were parsed, and not seen firing. It is a part of Prometheus: "+
		"apt-get install prometheus | brew install prometheus\n%v", err)
	return ""
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

// The twin: a rule that never fires does not pass the same test.
func TestAlertsThatDoNotFireAreCaught(t *testing.T) {
	promtool := findPromtool(t)
	dir := t.TempDir()
	for _, name := range []string{"alerts.yml", "alerts_test.yml"} {
		text, err := os.ReadFile(filepath.Join(monitoring, name))
		require.NoError(t, err)
		broken := strings.ReplaceAll(string(text), "(lock_losses_total[10m])", "(lock_lost_total[10m])")
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(broken), 0o600))
	}
	command := exec.Command(promtool, "test", "rules", "alerts_test.yml")
	command.Dir = dir
	out, err := command.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "LockLost")
}

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

func TestDashboardParses(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(monitoring, "dashboard.json"))
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.Title)
	require.NotEmpty(t, d.UID)
	require.Positive(t, d.SchemaVersion)
	require.Equal(t, "datasource", d.Templating.List[0].Type, "the operator who loads it chooses the data source, and edits nothing")
	require.Contains(t, string(d.Templating.List[1].Query), "label_values(lock_losses_total, policy)")

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
