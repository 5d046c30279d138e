package snippets_test

import (
	"encoding/json"
	"flag"
	"fmt"
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

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/internal/testkit/walk"
)

func read(t *testing.T, path string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(path))(t))
}

var update = flag.Bool("update", false, "write the pages of docs/evidence instead of comparing them")

// requirePage compares a page of docs/evidence with the results of a test, or writes it.
func requirePage(t *testing.T, page, results string) {
	t.Helper()
	if t.Failed() {
		return
	}
	page = "../evidence/" + page
	results = strings.NewReplacer("](problems.md", "](../problems.md", "](exactly-once.md", "](../exactly-once.md").Replace(results)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(results), 0o644))
	}
	require.Equal(t, read(t, page), results, "write it again with: GOWORK=$PWD/all.work go test ./docs/snippets -run %s -update", t.Name())
}

func pages(t *testing.T) []string {
	t.Helper()
	all := must.Get(filepath.Glob("../*.md"))(t)
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

// TestNewcomersWalk does what the tutorial says, from an empty directory: it writes its files and
// types its commands, and compares what they print.
func TestNewcomersWalk(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "compiles programs")
	t.Parallel()
	walk.Follow(t, "../tutorial.md", nil)
}

// TestWalks does the same with the quick starts. One that needs a browser is followed where there
// is one: in the tests of example.
func TestWalks(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "compiles programs")
	t.Parallel()
	for _, page := range walks(t) {
		if walk.Has(t, page, "browser") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			walk.Follow(t, page, nil)
		})
	}
}

func walks(t *testing.T) []string {
	t.Helper()
	all := must.Get(filepath.Glob("../walks/*.md"))(t)
	require.NotEmpty(t, all)
	return all
}

// TestWalksHaveTheirOwnPorts: they are followed at the same time, and test binaries run at the same
// time too.
func TestWalksHaveTheirOwnPorts(t *testing.T) {
	t.Parallel()
	whose := map[string]string{}
	for _, page := range append(walks(t), "../tutorial.md") {
		for _, b := range walk.Blocks(t, page) {
			if b.Language == "sh" { // a server that the reader has
				continue
			}
			for _, port := range walk.Ports(b.Text) {
				require.Contains(t, []string{"", page}, whose[port], "%s:%d: localhost:%s", page, b.Line, port)
				whose[port] = page
			}
		}
	}
	require.Greater(t, len(whose), 1)
}

// TestReadmeInstalls: the command of the README fetches what its first program
// needs.
func TestReadmeInstalls(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "compiles programs")
	t.Parallel()
	command := regexp.MustCompile("`(go get [^`]+)`").FindStringSubmatch(read(t, "../../README.md"))
	require.NotNil(t, command)
	program := walk.Blocks(t, "../../README.md")[0].Text + "\nfunc createOrder(http.ResponseWriter, *http.Request) {}\n"
	types(t, program, "go mod init example.com/mine", command[1], "go build")
}

// types has a reader write a program into an empty directory, and type commands.
func types(t *testing.T, program string, commands ...string) {
	t.Helper()
	reader := walk.NewReader(t)
	reader.Write("main.go", program)
	for _, typed := range commands {
		printed, status := reader.Type(typed)
		require.Zero(t, status, "$ %s\n%s", typed, printed)
	}
}

// TestStepsInAnEmptyModule: the page has all that its chain needs, up to the services: its first blocks are a package.
func TestStepsInAnEmptyModule(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "compiles programs")
	t.Parallel()
	program := "package lamps\n\nimport (\n"
	for _, path := range []string{"context", "errors", "fmt", "io", "net/http", "strings"} {
		program += fmt.Sprintf("%q\n", path)
	}
	for _, name := range []string{"client", "keyfunc", "lock", "middleware"} {
		program += fmt.Sprintf("%s %q\n", strings.Replace(name, "middleware", "latch", 1), "github.com/httplatch/httplatch/"+name)
	}
	program += ")\n"
	for _, b := range walk.Blocks(t, "../steps.md") {
		if strings.Contains(b.Text, "(s *shop)") || strings.Contains(b.Text, "type shop struct") {
			program += "\n" + b.Text
		}
	}
	types(t, program, "go mod init example.com/lamps", "go get github.com/httplatch/httplatch", "go mod tidy", "go vet")
}
