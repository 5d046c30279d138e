package snippets_test

import (
	"encoding/json"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/httplatch/httplatch/internal/testkit/walk"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func pages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../*.md")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return append(all, walks(t)...)
}

// TestGoBlocksAreCompiled: what readers copy is a part of a file of this
// repository, which is compiled and tested; or of a page that is followed, which
// compiles it.
func TestGoBlocksAreCompiled(t *testing.T) {
	t.Parallel()
	var compiled []string
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "testdata" {
			return fs.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".go") {
			compiled = append(compiled, "\n"+flat(read(t, path)))
		}
		return err
	}))
	for _, page := range pages(t) {
		for _, b := range walk.Blocks(t, page) {
			if b.Language != "go" {
				continue
			}
			formatted, err := format.Source([]byte(b.Text))
			require.NoError(t, err, "%s:%d", page, b.Line)
			require.Equal(t, string(formatted), b.Text, "%s:%d is not formatted", page, b.Line)
			if page == "../tutorial.md" || filepath.Dir(page) == "../walks" {
				continue
			}
			require.True(t, partOf(compiled, b.Text), "%s:%d: no file of the repository has this code:\n%s", page, b.Line, b.Text)
		}
	}
	require.False(t, partOf(compiled, "notInAnyFile(this)\n"), "this search can fail")
}

func partOf(files []string, code string) bool {
	for _, f := range files {
		if strings.Contains(f, "\n"+strings.TrimSuffix(flat(code), "\n")) {
			return true
		}
	}
	return false
}

// flat is code without its indentation, which is another one on a page.
func flat(code string) string { return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(code, "") }

// TestOtherBlocksParse: files for other programs are at least well-formed. What
// they mean is tested next to the code that they belong to.
func TestOtherBlocksParse(t *testing.T) {
	t.Parallel()
	for _, page := range append(pages(t), "../../README.md", "../../CONTRIBUTING.md") {
		for _, b := range walk.Blocks(t, page) {
			var err error
			switch b.Language {
			case "json":
				var v any
				err = json.Unmarshal([]byte(b.Text), &v)
			case "yaml":
				var v any
				err = yaml.Unmarshal([]byte(b.Text), &v)
			case "sh":
				err = exec.Command("bash", "-n", "-c", b.Text).Run()
			}
			require.NoError(t, err, "%s:%d", page, b.Line)
		}
	}
}

// TestIndexHasEveryPage: a page that readers cannot find is as good as missing.
func TestIndexHasEveryPage(t *testing.T) {
	t.Parallel()
	index := read(t, "../README.md")
	for _, page := range pages(t) {
		if name := strings.TrimPrefix(page, "../"); name != "README.md" {
			require.Contains(t, index, "]("+name+")")
		}
	}
}

// TestContributingNamesEveryCommand: the table of commands has each that `make help` explains.
func TestContributingNamesEveryCommand(t *testing.T) {
	t.Parallel()
	table := read(t, "../../CONTRIBUTING.md")
	commands := regexp.MustCompile(`(?m)^([a-z-]+):.* ## .*`).FindAllStringSubmatch(read(t, "../../Makefile"), -1)
	require.Greater(t, len(commands), 5)
	for _, c := range commands {
		if c[1] != "help" {
			require.Contains(t, table, "\n| `make "+c[1]+"` |")
		}
	}
}
