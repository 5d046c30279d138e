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
	return all
}

// TestGoBlocksAreCompiled: what readers copy is a part of a file of this
// repository, which is compiled and tested; or the tutorial's, which the walk
// compiles.
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
		for _, b := range blocksOf(t, page) {
			if b.language != "go" {
				continue
			}
			formatted, err := format.Source([]byte(b.text))
			require.NoError(t, err, "%s:%d", page, b.line)
			require.Equal(t, string(formatted), b.text, "%s:%d is not formatted", page, b.line)
			if page == "../tutorial.md" {
				continue
			}
			require.True(t, partOf(compiled, b.text), "%s:%d: no file of the repository has this code:\n%s", page, b.line, b.text)
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
		for _, b := range blocksOf(t, page) {
			var err error
			switch b.language {
			case "json":
				var v any
				err = json.Unmarshal([]byte(b.text), &v)
			case "yaml":
				var v any
				err = yaml.Unmarshal([]byte(b.text), &v)
			case "sh":
				err = exec.Command("bash", "-n", "-c", b.text).Run()
			}
			require.NoError(t, err, "%s:%d", page, b.line)
		}
	}
}

// TestIndexHasEveryPage: a page that readers cannot find is as good as missing.
func TestIndexHasEveryPage(t *testing.T) {
	t.Parallel()
	index := read(t, "../README.md")
	for _, page := range pages(t) {
		if name := filepath.Base(page); name != "README.md" {
			require.Contains(t, index, "]("+name+")")
		}
	}
}
