package model_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const howToInstall = `the model checker spin, or the C compiler that it needs, is missing.
Install them (apt-get install spin gcc libc6-dev, brew install spin)`

// tools are the programs that check a model.
type tools struct {
	spin string
	cc   []string
}

// findTools ends the test if there are none.
func findTools(t *testing.T) tools {
	t.Helper()
	found, err := lookTools(t.Context())
	if err != nil {
		testmain.Unavailable(t, howToInstall, err)
	}
	return found
}

func lookTools(ctx context.Context) (tools, error) {
	spin, err := exec.LookPath("spin")
	if err != nil {
		return tools{}, err
	}
	version, err := exec.CommandContext(ctx, spin, "-V").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(version), "Spin Version") {
		return tools{}, fmt.Errorf("%s is another program of that name", spin)
	}
	env, err := exec.CommandContext(ctx, "go", "env", "CC").Output()
	if err != nil {
		return tools{}, fmt.Errorf("go env CC: %w", err)
	}
	cc := strings.Fields(string(env))
	if len(cc) == 0 {
		return tools{}, errors.New("go env CC names no compiler")
	}
	if _, err := exec.LookPath(cc[0]); err != nil {
		return tools{}, err
	}
	return tools{spin: spin, cc: cc}, nil
}

// search is what an exhaustive search has found.
type search struct {
	output   string
	states   int
	errors   int
	violated string // the variable whose negation was asserted and did not hold
	steps    string // the shortest way there, as the model tells it
}

var (
	statesLine    = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
	errorsLine    = regexp.MustCompile(`errors: (\d+)`)
	assertionLine = regexp.MustCompile(`assertion violated\s+!\((\w+)\)`)
)

// search tries all executions of a model, the shortest ones first, until one
// breaks an assertion or gets stuck.
func (tl tools) search(t *testing.T, model string, defines []string) search {
	t.Helper()
	dir := t.TempDir() // spin and its verifier leave their files where they run
	require.NoError(t, os.WriteFile(filepath.Join(dir, model), must.Get(os.ReadFile(model))(t), 0o600))

	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", cmd, out)
		return string(out)
	}
	variant := []string{"-P" + strings.Join(tl.cc, " ") + " -E -x c"}
	for _, d := range defines {
		variant = append(variant, "-D"+d)
	}
	variant = append(variant, model)

	run(tl.spin, append([]string{"-a"}, variant...)...)
	// Not optimized: most searches take less time than that would. The limit, in
	// MB, is for a model that has grown too large.
	run(tl.cc[0], append(tl.cc[1:len(tl.cc):len(tl.cc)],
		"-w", "-DSAFETY", "-DBFS", "-DMEMLIM=1024", "-o", "pan", "pan.c")...)
	s := search{output: run(filepath.Join(dir, "pan"), "-w20")}

	s.states = number(t, statesLine, s.output)
	s.errors = number(t, errorsLine, s.output)
	require.Contains(t, s.output, "Full statespace search")
	if s.errors == 0 {
		return s
	}
	if m := assertionLine.FindStringSubmatch(s.output); m != nil {
		s.violated = m[1]
	}
	s.steps = stepsOf(run(tl.spin, append([]string{"-t", "-T", "-B"}, variant...)...))
	return s
}

func number(t *testing.T, line *regexp.Regexp, output string) int {
	t.Helper()
	m := line.FindStringSubmatch(output)
	require.NotNil(t, m, "%s is not in what the search prints:\n%s", line, output)
	return must.Get(strconv.Atoi(m[1]))(t)
}

// stepsOf makes one line of what a model printed while an execution was replayed.
func stepsOf(replay string) string {
	var steps []string
	for line := range strings.Lines(replay) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "spin:") {
			steps = append(steps, line)
		}
	}
	return strings.Join(steps, "; ")
}

// ended reports whether the process came to its end in some execution: a
// property that is only looked at there has been looked at.
func (s search) ended(process string) bool {
	_, unreached, found := strings.Cut(s.output, "unreached in proctype "+process+"\n")
	return found && strings.HasPrefix(strings.TrimSpace(unreached), "(0 of ")
}
