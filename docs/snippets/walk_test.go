package snippets_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNewcomersWalk does what the tutorial says, from an empty directory: it
// writes its files and types its commands, and compares what they print. Only
// the environment knows that the module is not published: in it, GOPROXY has
// this checkout.
func TestNewcomersWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("the tutorial takes a while")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		unavailable(t, "curl is not installed")
	}
	awaitPort(t, "localhost:8080")

	steps := stepsOf(t, "../tutorial.md")
	out := runAsNewcomer(t, t.TempDir(), scriptOf(steps))
	results := regexp.MustCompile(`(?m)^@ step (\d+): (\d+)\n`).FindAllStringSubmatchIndex(out, -1)
	require.Len(t, results, len(steps), out)
	begin := 0
	for i, s := range steps {
		printed, end := out[begin:results[i][0]], results[i][1]
		status, err := strconv.Atoi(out[results[i][4]:results[i][5]])
		require.NoError(t, err)
		begin = end
		if s.command == "" {
			continue
		}
		t.Logf("$ %s\n%s", s.command, printed)
		require.Equal(t, strings.Contains(s.want, "FAIL"), status != 0, "$ %s\n%s", s.command, printed)
		require.Empty(t, missing(s.want, printed), "$ %s\n%s", s.command, printed)
	}
}

// TestReadmeInstalls: the command of the README fetches what its first program
// needs.
func TestReadmeInstalls(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the library anew")
	}
	command := regexp.MustCompile("`(go get [^`]+)`").FindStringSubmatch(read(t, "../../README.md"))
	require.NotNil(t, command)
	program := blocksOf(t, "../../README.md")[0].text + "\nfunc createOrder(http.ResponseWriter, *http.Request) {}\n"
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
	runAsNewcomer(t, dir, "set -e\ngo mod init example.com/mine\n"+command[1]+"\ngo build\n")
}

// runAsNewcomer returns what the script prints.
func runAsNewcomer(t *testing.T, dir, script string) string {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		unavailable(t, "bash is not installed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // many times what it takes
	defer cancel()
	shell := exec.CommandContext(ctx, "bash")
	shell.Dir = dir
	shell.Stdin = strings.NewReader("exec 2>&1\n" + script)
	shell.Env = append(os.Environ(), newcomersEnv(t)...)
	shell.WaitDelay = 10 * time.Second
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// step is a file that the reader writes, or a command that the reader types.
type step struct {
	file, text    string
	command, want string
}

// stepsOf reads a page. A file is a block of Go behind a line that ends with its
// name; commands and what they print are blocks called console.
func stepsOf(t *testing.T, page string) []step {
	t.Helper()
	var steps []step
	for _, b := range blocksOf(t, page) {
		switch b.language {
		case "go":
			name := regexp.MustCompile("`([a-z_]+\\.go)`:$").FindStringSubmatch(b.before)
			require.NotNil(t, name, "%s:%d: which file is this? The line before says %q", page, b.line, b.before)
			steps = append(steps, step{file: name[1], text: b.text})
		case "console":
			for line := range strings.Lines(b.text) {
				if command, is := strings.CutPrefix(line, "$ "); is {
					steps = append(steps, step{command: strings.TrimSpace(command)})
				} else {
					steps[len(steps)-1].want += line
				}
			}
		default:
			t.Fatalf("%s:%d: a reader does not know what to do with a block of %q", page, b.line, b.language)
		}
	}
	return steps
}

// scriptOf is for one shell, as the reader has one: directories and jobs last.
func scriptOf(steps []step) string {
	var b strings.Builder
	b.WriteString("set -m\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n")
	for i, s := range steps {
		switch {
		case s.file != "":
			fmt.Fprintf(&b, "cat >%s <<'END OF FILE'\n%sEND OF FILE\n", s.file, s.text)
		case strings.HasSuffix(s.command, "&"):
			// No reader types the next command in less than it takes to listen.
			fmt.Fprintf(&b, "%s\nfor i in {1..600}; do (: </dev/tcp/localhost/8080) 2>/dev/null && break; sleep 0.1; done\n", s.command)
		default:
			fmt.Fprintf(&b, "%s </dev/null\n", s.command)
		}
		fmt.Fprintf(&b, "echo \"@ step %d: $?\"\n", i)
	}
	b.WriteString("exit 0\n")
	return b.String()
}

// newcomersEnv is that of a newcomer with an empty module cache. Besides
// this checkout, modules come from where they come from on this machine.
func newcomersEnv(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	require.NoError(t, err)
	here := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, here, 2)
	downloaded := "file://" + filepath.ToSlash(filepath.Join(here[0], "cache", "download"))
	return []string{
		"GOPROXY=" + serveModule(t) + "," + downloaded + "," + here[1],
		"GOSUMDB=off", // the checksum database does not know this version
		"GOMODCACHE=" + t.TempDir(),
		"GOFLAGS=-modcacherw", // so that t can remove it
		"GOWORK=off",
	}
}

// missing is the first of the lines that a page shows which was not printed, in
// this order. How long something took may differ, and there may be more.
func missing(shown, printed string) string {
	rest := strings.Split(timeless(printed), "\n")
	for line := range strings.Lines(shown) {
		line = strings.TrimSuffix(line, "\n")
		i := slices.IndexFunc(rest, func(got string) bool { return strings.TrimRight(got, "\r") == timeless(line) })
		if i < 0 {
			return line
		}
		rest = rest[i+1:]
	}
	return ""
}

func timeless(s string) string { return regexp.MustCompile(`\d+\.\d+s`).ReplaceAllString(s, "T") }

// awaitPort waits until no other process listens on addr: the tutorial does.
func awaitPort(t *testing.T, addr string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
		if err == nil {
			require.NoError(t, listener.Close())
			return
		}
		if time.Now().After(deadline) {
			unavailable(t, err.Error())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// unavailable skips t, but not where everything has to be there.
func unavailable(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// TestMissingLines: the comparison of the walk can fail.
func TestMissingLines(t *testing.T) {
	const printed = "2026/11/21 20:30:16 ERROR\nPASS\nok  \texample.com/orders\t9.032s\r\n"
	for shown, want := range map[string]string{
		"":                                       "",
		"PASS\nok  \texample.com/orders\t0.1s\n": "",
		"ok  \texample.com/orders\t0.1s\nPASS\n": "PASS",
		"FAIL\n":                                 "FAIL",
	} {
		require.Equal(t, want, missing(shown, printed), shown)
	}
}
