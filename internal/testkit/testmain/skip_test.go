package testmain_test

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const repeats = "TEST_REPEATS_WITH"

// short sets -short until the end of t.
func short(t *testing.T, is string) {
	t.Helper()
	was := flag.Lookup("test.short").Value.String()
	require.NoError(t, flag.Set("test.short", is))
	t.Cleanup(func() { require.NoError(t, flag.Set("test.short", was)) })
}

func TestSkipIn(t *testing.T) {
	const all = testmain.Short | testmain.NewerServers
	for _, test := range []struct {
		short, repeats string
		in             testmain.Run
		skipped        bool
	}{
		{"false", "", all, false}, // make test
		{"false", "another run", all, false},
		{"true", "", testmain.Short, true},
		{"true", "", testmain.NewerServers, false},
		{"false", "newer servers", testmain.NewerServers, true},
		{"false", "newer servers", testmain.Short, false},
		{"true", "newer servers", testmain.Short, true},
	} {
		short(t, test.short)
		t.Setenv(repeats, test.repeats)
		v := testmain.Judge(t, func(tb testing.TB) { testmain.SkipIn(tb, test.in, "waits") })
		require.Equal(t, test.skipped, v.WhySkipped != "", "%+v", test)
		require.False(t, v.Failed())
		if test.skipped {
			require.Equal(t, "not in this run: waits", v.WhySkipped)
		}
	}
}

// CI runs make test and make search, which leave out no test: they ask for none of the runs of
// SkipIn, and take none over from their environment.
func TestMakeTestAndSearchSkipNothing(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		testmain.Unavailable(t, "make is not installed", err)
	}
	t.Setenv(repeats, "newer servers")
	for _, name := range []string{"MAKEFLAGS", "MFLAGS", "TESTFLAGS"} { // of a make that runs this test
		t.Setenv(name, "")
	}
	tests := regexp.MustCompile(`(?m)^.*\bgo test\b.*$`)
	all := tests.FindAllString(dryRun(t, "-n", "test"), -1)
	require.Len(t, all, 5)
	apart := all[4] // a module outside of the workspace
	require.Regexp(t, `^cd middleware/caddy && .* \./\.\.\.$`, apart)
	require.NotRegexp(t, `-short|-skip|-run|`+repeats, apart)
	searches := tests.FindAllString(dryRun(t, "-n", "search"), -1)
	require.Len(t, searches, 4)
	require.Regexp(t, `^cd bench && .* \./internal/day `, searches[3])
	all = append(all[:4], searches[:3]...)
	var tested []string
	for _, line := range all {
		require.NotRegexp(t, `-short|-skip|-run|`+repeats, line)
		tested = append(tested, packagesOf(t, line)...)
	}
	require.ElementsMatch(t, list(t, "go list work"), tested, "each package once")
	require.Contains(t, tests.FindString(dryRun(t, "-n", "test-newer")), "-short")
	require.Contains(t, tests.FindString(dryRun(t, "-n", "test-servers")), repeats+"='newer servers'")

	probe := filepath.Join(t.TempDir(), "probe.mk")
	require.NoError(t, os.WriteFile(probe, []byte("probe:\n\t@echo \"[$$"+repeats+"]\"\n"), 0o600))
	require.Equal(t, "[]\n", dryRun(t, "-f", "Makefile", "-f", probe, "probe"))

	ci, err := os.ReadFile("../../../.ci/run")
	require.NoError(t, err)
	require.Regexp(t, `(?ms)^make test 2>&1 .*^\{ make search && make test-newer && make test-servers NEWER="valkey redis"; \} `, string(ci))
	require.Regexp(t, `(?m)^\(nice -n 19 make lint && nice -n 19 scripts/release -n\) `, string(ci))
}

// Make check tests a page that was changed: go test tracks the files of a test's own module, and
// takes the result of a test that reads others from its cache.
func TestMakeCheckReadsPagesAnew(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		testmain.Unavailable(t, "make is not installed", err)
	}
	uncached := regexp.MustCompile(`(?m)^.*\bgo test\b.* -count=1 .*$`).FindString(dryRun(t, "-n", "check"))
	require.NotEmpty(t, uncached)
	tested := packagesOf(t, uncached)
	page := regexp.MustCompile(`"((?:\.\./)+[^"]*\.md)"`)
	for _, line := range list(t, "go list -f '{{.ImportPath}}|{{.Dir}}|{{.Module.Dir}}' work") {
		p := strings.Split(line, "|")
		files, err := filepath.Glob(filepath.Join(p[1], "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range page.FindAllSubmatch(text, -1) {
				if inside, err := filepath.Rel(p[2], filepath.Join(p[1], string(m[1]))); err != nil || strings.HasPrefix(inside, "..") {
					require.Contains(t, tested, p[0], "OUTSIDE in the Makefile: %s reads %s", file, m[1])
				}
			}
		}
	}
}

// packagesOf returns the packages that a command of the Makefile tests: the packages that its go
// list lists, or the package at its end.
func packagesOf(t *testing.T, line string) []string {
	t.Helper()
	if lists := regexp.MustCompile(`\$\((go list .*)\)$`).FindStringSubmatch(line); lists != nil {
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
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

func dryRun(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-s", "-C", "../../..", "--no-print-directory"}, args...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(set string) bool { // a make that runs this test sets its own flags
		return strings.HasPrefix(set, "MAKEFLAGS=") || strings.HasPrefix(set, "TESTFLAGS=")
	})
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

// Tests have no other condition for a run than SkipIn.
func TestOnlySkipInKnowsTheRun(t *testing.T) {
	t.Parallel()
	asks := regexp.MustCompile(`testing\.Short\(\)|` + repeats)
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
