package testmain_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// What the Makefile sets.
const marked, leftOut = "TEST_RUN", "TEST_LEFT_OUT"

// Make test, make test-rest and make test-models, which CI runs, test each package. What the first leaves out, the
// others run: they leave out nothing.
func TestMakeTestAllLeavesOutNothing(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		testmain.Unavailable(t, "make is not installed", err)
	}
	noted := filepath.Join(t.TempDir(), "left-out.txt")
	const lock, wire, keyfunc = "github.com/httplatch/httplatch/lock", "github.com/httplatch/httplatch/lock/redisstore/internal/wire", "github.com/httplatch/httplatch/keyfunc"
	require.NoError(t, os.WriteFile(noted, []byte(lock+"\tTestA/sub\twaits\n"+wire+"\tTestB\twaits\n"+keyfunc+"\tTestA\twaits\n"), 0o600))
	for _, name := range []string{"MAKEFLAGS", "MFLAGS", "TESTFLAGS"} { // of a make that runs this test
		t.Setenv(name, "")
	}
	t.Setenv(marked, "newer servers")
	t.Setenv(leftOut, "elsewhere")
	t.Setenv("GOWORK", must.Get(filepath.Abs("../../../all.work"))(t)) // as the Makefile does
	tests := regexp.MustCompile(`(?m)^.*\bgo test\b.*$`)
	quick := tests.FindAllString(dryRun(t, "-n", "test", "LEFT_OUT="+noted), -1)
	require.Len(t, quick, 1)
	require.Regexp(t, `^TEST_RUN=quick TEST_LEFT_OUT=`+noted+` go test `, quick[0])
	require.NotRegexp(t, `-short|-skip|-run`, quick[0])
	tested := packagesOf(t, quick[0])
	require.Subset(t, tested, []string{lock, wire, keyfunc})

	rest := tests.FindAllString(dryRun(t, "-n", "test-rest", "LEFT_OUT="+noted), -1)
	require.Len(t, rest, 7)
	var again []string
	for _, line := range rest[:3] {
		names := regexp.MustCompile(`-run "(.*)" `).FindStringSubmatch(line)
		require.Len(t, names, 2, line)
		require.Equal(t, []string{"^(TestA|TestB)$"}, list(t, `echo "`+names[1]+`"`))
		require.NotRegexp(t, `-short|-skip|TEST_`, line)
		again = append(again, packagesOf(t, line)...)
	}
	require.ElementsMatch(t, []string{lock, wire, keyfunc}, again)
	models := tests.FindAllString(dryRun(t, "-n", "test-models"), -1)
	require.Len(t, models, 2)
	for _, line := range append(rest[3:], models...) {
		require.NotRegexp(t, `-short|-skip|-run|TEST_`, line)
	}
	for _, line := range append(rest[3:6:6], models[0]) {
		tested = append(tested, packagesOf(t, line)...)
	}
	require.ElementsMatch(t, list(t, "go list work"), tested, "each package once")
	require.Regexp(t, `^cd bench && .* \./internal/day `, models[1])
	require.Regexp(t, `^cd middleware/caddy && .* \./\.\.\.$`, rest[6])
	require.Contains(t, tests.FindString(dryRun(t, "-n", "test-newer")), "-short")
	require.Contains(t, tests.FindString(dryRun(t, "-n", "test-servers")), marked+"='newer servers'")

	probe := filepath.Join(t.TempDir(), "probe.mk")
	require.NoError(t, os.WriteFile(probe, []byte("probe:\n\t@echo \"[$$"+marked+"$$"+leftOut+"]\"\n"), 0o600))
	require.Equal(t, "[]\n", dryRun(t, "-f", "Makefile", "-f", probe, "probe"))

	ci := must.Get(os.ReadFile("../../../.ci/run"))(t)
	require.Regexp(t, `(?ms)^make test .*^\{ make test-rest && make test-newer && make test-servers NEWER="valkey redis"; \} `, string(ci))
	require.Regexp(t, `(?m)^\(nice -n 19 make lint && nice -n 19 scripts/release -n && nice -n 19 make test-models\) `, string(ci))
}

// Make check tests a page that was changed: go test tracks the files of a test's own module, and
// takes the result of a test that reads others from its cache.
func TestMakeCheckReadsPagesAnew(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		testmain.Unavailable(t, "make is not installed", err)
	}
	t.Setenv("GOWORK", must.Get(filepath.Abs("../../../all.work"))(t)) // as the Makefile does
	lines := regexp.MustCompile(`(?m)^.*\bgo test\b.*$`).FindAllString(dryRun(t, "-n", "check"), -1)
	require.Len(t, lines, 2)
	require.Contains(t, lines[1], " -count=1 ")
	cached := packagesOf(t, lines[0])
	page := regexp.MustCompile(`"((?:\.\./)+[^"]*\.md)"`)
	for _, line := range list(t, "go list -f '{{.ImportPath}}|{{.Dir}}|{{.Module.Dir}}' work") {
		p := strings.Split(line, "|")
		files := must.Get(filepath.Glob(filepath.Join(p[1], "*_test.go")))(t)
		for _, file := range files {
			text := must.Get(os.ReadFile(file))(t)
			for _, m := range page.FindAllSubmatch(text, -1) {
				if inside, err := filepath.Rel(p[2], filepath.Join(p[1], string(m[1]))); err != nil || strings.HasPrefix(inside, "..") {
					require.NotContains(t, cached, p[0], "OUTSIDE in the Makefile: %s reads %s", file, m[1])
				}
			}
		}
	}
}

// packagesOf returns the packages that a command of the Makefile tests: the packages that its go
// list lists, or the package at its end.
func packagesOf(t *testing.T, line string) []string {
	t.Helper()
	if lists := regexp.MustCompile(` \$\(((?:go list|cut) .*)\)$`).FindStringSubmatch(line); lists != nil {
		return list(t, lists[1])
	}
	return list(t, "go list "+line[strings.LastIndex(line, " ")+1:])
}

// list returns the words that a shell command prints at the root of the repository.
func list(t *testing.T, command string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = "../../.."
	cmd.Stderr = os.Stderr
	return strings.Fields(string(must.Get(cmd.Output())(t)))
}

func dryRun(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-s", "-C", "../../..", "--no-print-directory"}, args...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(set string) bool { // a make that runs this test sets its own flags
		return strings.HasPrefix(set, "MAKEFLAGS=") || strings.HasPrefix(set, "TESTFLAGS=")
	})
	cmd.Stderr = os.Stderr
	return string(must.Get(cmd.Output())(t))
}

// Tests have no other condition for a run than SkipIn.
func TestOnlySkipInKnowsTheRun(t *testing.T) {
	t.Parallel()
	asks := regexp.MustCompile(`testing\.Short\(\)|` + marked)
	require.NoError(t, filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "../../.." && strings.HasPrefix(d.Name(), "."), d.IsDir() && filepath.Base(path) == "testmain":
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if asks.Match(text) {
			require.Fail(t, "use testmain.SkipIn", "%s: %s", path, bytes.TrimSpace(asks.Find(text)))
		}
		return err
	}))
}
