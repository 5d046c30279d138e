package walk

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// The time that a command may take, and the additional time in which a background process may
// print. Both are many times as long as needed.
const (
	commandPatience = 5 * time.Minute
	shownPatience   = 20 * time.Second
)

// Reader uses a shell in an empty directory. The shell and all its processes end with the test.
type Reader struct {
	tb    testing.TB
	ctx   context.Context //nolint:containedctx // of the test, and of the shell
	shell io.Writer
	out   output
	seen  int // of out
	typed int // commands
}

// NewReader gives a reader an empty directory, and the modules of this checkout to fetch. TestMain
// has to use [Main].
func NewReader(tb testing.TB) *Reader {
	tb.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		testmain.Unavailable(tb, "bash is not installed", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	shell := exec.CommandContext(ctx, "bash")
	r := &Reader{tb: tb, ctx: ctx, out: output{more: make(chan struct{}, 1)}}
	shell.Dir = tb.TempDir()
	shell.Env = append(os.Environ(), environment(tb)...)
	shell.Stdout, shell.Stderr = &r.out, &r.out
	shell.WaitDelay = 10 * time.Second
	inOneGroup(shell)
	stdin, err := shell.StdinPipe()
	if err == nil {
		r.shell = stdin
		err = shell.Start()
	}
	if err != nil {
		cancel()
		tb.Fatalf("walk: start bash: %v", err)
	}
	tb.Cleanup(func() {
		cancel()
		_ = shell.Wait() // says that it was killed
	})
	for name := range settings {
		r.run("unset " + name)
	}
	return r
}

// Write writes a file.
func (r *Reader) Write(name, text string) {
	r.tb.Helper()
	done := r.run(fmt.Sprintf("cat >'%s' <<'END OF FILE'\n%sEND OF FILE", name, text))
	if done.status != 0 {
		r.tb.Fatalf("walk: write %s: %s", name, r.out.since(done.begin))
	}
}

// Type types a command. When it has ended, or begun in the background, it returns the output since
// the previous command, and the exit status.
func (r *Reader) Type(command string) (printed string, status int) {
	r.tb.Helper()
	done := r.run("{ " + command + "\n} </dev/null")
	return withoutMarks(r.out.since(done.begin)), done.status
}

// done describes a command that has ended, or begun in the background.
type done struct {
	begin   int // the beginning of the new output
	status  int
	running bool // there are processes in the background, which may print more
}

// run makes the shell run a command, and print a mark when the command has ended or begun.
func (r *Reader) run(command string) done {
	r.tb.Helper()
	r.typed++
	begin := r.seen
	// If the shell has ended, it prints no mark.
	_, failure := fmt.Fprintf(r.shell, "%s\nwalk_s=$? walk_j=$(jobs -pr); printf '\\n@ %d %%d %%s\\n' $walk_s \"${walk_j:+running}\"\n", command, r.typed)
	mark := regexp.MustCompile(`(?m)^@ ` + strconv.Itoa(r.typed) + ` (\d+) (running)?\n`)
	var at []int
	var text string
	if failure != nil || !r.out.await(r.ctx, commandPatience, begin, func(printed string) bool {
		text, at = printed, mark.FindStringSubmatchIndex(printed)
		return at != nil
	}) {
		r.tb.Fatalf("walk: $ %s\nhas not ended within %v: %v\n%s", command, commandPatience, failure, r.out.since(begin))
	}
	r.seen = begin + at[1]
	status, _ := strconv.Atoi(text[at[2]:at[3]])
	return done{begin, status, at[4] >= 0}
}

// withoutMarks returns the output as a reader sees it, without the marks of the shell.
func withoutMarks(printed string) string {
	return strings.Trim(regexp.MustCompile(`(?m)^\n?@ \d+ \d+ (?:running)?\n`).ReplaceAllString(printed, ""), "\n")
}
