package telemetry_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

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
	runbook, err := os.ReadFile("../../docs/runbook.md")
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

// The twin: a link that leads nowhere, or elsewhere, is caught.
func TestRunbooksThatDoNotLeadAreCaught(t *testing.T) {
	const page = "https://github.com/httplatch/httplatch/blob/main/docs/runbook.md#"
	runbook := []byte("# Runbook\n\n## LockLost\n\nText.\n\n1. Look.\n\n## LockHeld\n\nText.\n")
	for name, tt := range map[string]struct{ alert, url, want string }{
		"leads":          {"LockLost", page + "locklost", ""},
		"none":           {"LockLost", "", `runbook_url is ""`},
		"another page":   {"LockLost", "https://example.com/#locklost", "runbook_url is"},
		"no section":     {"LockGone", page + "lockgone", `the runbook has no section "lockgone"`},
		"no anchor":      {"LockLost", page, `the runbook has no section ""`},
		"another's":      {"LockGone", page + "locklost", "leads to LockLost"},
		"nothing to do":  {"LockHeld", page + "lockheld", "has no steps"},
		"the page's own": {"Runbook", page + "runbook", `the runbook has no section "runbook"`},
	} {
		err := runbookOf(tt.alert, map[string]string{"runbook_url": tt.url}, runbook)
		if tt.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, tt.want, name)
		}
	}
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

// The twin: a rule that never fires does not pass the same test.
func TestAlertsThatDoNotFireAreCaught(t *testing.T) {
	promtool := findPromtool(t)
	for alert, change := range map[string][2]string{
		"LockLost":        {"(lock_losses_total[10m])", "(lock_lost_total[10m])"},
		"LockMostRefused": {"[1m]", "[5m]"}, // too late
	} {
		dir := t.TempDir()
		for _, name := range []string{"alerts.yml", "alerts_test.yml"} {
			text, err := os.ReadFile(filepath.Join(monitoring, name))
			require.NoError(t, err)
			broken := strings.ReplaceAll(string(text), change[0], change[1])
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(broken), 0o600))
		}
		command := exec.Command(promtool, "test", "rules", "alerts_test.yml")
		command.Dir = dir
		out, err := command.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), alert)
	}
}
