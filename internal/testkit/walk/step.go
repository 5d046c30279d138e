package walk

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// step is the action of a reader at one place of a page. One of file, setting, command and other is
// set.
type step struct {
	line int

	file    string // to write text into
	setting string // the name of a variable
	command string
	other   string // the language of a block that only the caller of Follow understands
	text    string
	shown   []string // below the command
}

var (
	fileName = regexp.MustCompile("`([\\w./-]+\\.\\w+)`:$")
	export   = regexp.MustCompile(`^export ([A-Z_]+)=\S`)
	port     = regexp.MustCompile(`\blocalhost:(\d+)`)
	fails    = regexp.MustCompile(`\bFAIL\b|^exit status |^curl: `)
)

// stepsOf reads a page. Blocks of the languages in others are left to the caller of Follow.
func stepsOf(tb testing.TB, page string, others []string) (steps []step) {
	tb.Helper()
	for _, b := range Blocks(tb, page) {
		at := fmt.Sprintf("%s:%d", page, b.Line)
		switch {
		case slices.Contains(others, b.Language):
			steps = append(steps, step{line: b.Line, other: b.Language, text: b.Text})
		case b.Language == "console":
			typed := commandsOf(b)
			if len(typed) == 0 {
				tb.Fatalf("%s: no command: one begins with \"$ \"", at)
			}
			steps = append(steps, typed...)
		case b.Language == "sh":
			for line := range strings.Lines(b.Text) {
				m := export.FindStringSubmatch(line)
				if m == nil {
					tb.Fatalf("%s: a block of sh has lines \"export NAME=value\", not %q", at, line)
				}
				steps = append(steps, step{line: b.Line, setting: m[1]})
			}
		default:
			m := fileName.FindStringSubmatch(b.Before)
			if m == nil {
				tb.Fatalf("%s: which file is this? The line before says %q", at, b.Before)
			}
			steps = append(steps, step{line: b.Line, file: m[1], text: b.Text})
		}
	}
	return steps
}

func commandsOf(b Block) (steps []step) {
	goesOn := false
	number := b.Line
	for line := range strings.Lines(b.Text) {
		number++
		line = strings.TrimRight(line, " \r\n")
		command, is := strings.CutPrefix(line, "$ ")
		switch last := len(steps) - 1; {
		case is:
			steps = append(steps, step{line: number, command: command})
			goesOn = strings.HasSuffix(line, `\`)
		case goesOn:
			steps[last].command += "\n" + line
			goesOn = strings.HasSuffix(line, `\`)
		case last < 0:
			return nil
		default:
			steps[last].shown = append(steps[last].shown, line)
		}
	}
	return steps
}

// background reports whether the shell does not wait for the command.
func (s step) background() bool { return strings.HasSuffix(s.command, "&") }

// fails reports whether the page shows that the command fails.
func (s step) fails() bool { return slices.ContainsFunc(s.shown, fails.MatchString) }

// programsOf returns the programs of the commands that a machine with Go may lack.
func programsOf(steps []step) (programs []string) {
	for _, program := range []string{"curl", "psql"} {
		if slices.ContainsFunc(steps, func(s step) bool { return slices.Contains(strings.Fields(s.command), program) }) {
			programs = append(programs, program)
		}
	}
	return programs
}

// Ports returns the ports that a page, or a part of one, names as localhost:PORT.
func Ports(text string) (ports []string) {
	for _, m := range port.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(ports, m[1]) {
			ports = append(ports, m[1])
		}
	}
	return ports
}
