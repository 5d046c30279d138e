// Command pgserver is a PostgreSQL server for the tests of other modules, which cannot
// import pgtest: package internal/testkit/pgserver starts it. Its arguments are settings of the
// server. For each line that it reads it makes a database and prints the superuser's URL of
// that, and it ends with its standard input.
// Its exit code is 3 if there is no PostgreSQL here, and a test without it is to be skipped.
package main

import (
	"bufio"
	"fmt"
	"os"
	"testing"

	"github.com/httplatch/httplatch/lock/pgstore/internal/pgtest"
)

func main() {
	program := new(program)
	c := pgtest.Start(program, os.Args[1:]...)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); { // its error is an end too
		_, _ = fmt.Fprintln(os.Stdout, c.URL(c.Database(program), "")) // its reader may have ended
	}
	program.end()
	if program.failed {
		os.Exit(1)
	}
}

// program has the methods of a test that pgtest needs. All others panic.
type program struct {
	testing.TB

	cleanups []func()
	failed   bool
}

// Helper is part of [testing.TB].
func (*program) Helper() {}

// Cleanup is part of [testing.TB].
func (p *program) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

// Fatal is part of [testing.TB].
func (p *program) Fatal(args ...any) { p.exit(1, fmt.Sprint(args...)) }

// Fatalf is part of [testing.TB].
func (p *program) Fatalf(format string, args ...any) { p.exit(1, fmt.Sprintf(format, args...)) }

// Errorf is part of [testing.TB].
func (p *program) Errorf(format string, args ...any) {
	p.failed = true
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// Skipf is part of [testing.TB].
func (p *program) Skipf(format string, args ...any) { p.exit(3, fmt.Sprintf(format, args...)) }

func (p *program) exit(code int, why string) {
	fmt.Fprintln(os.Stderr, why)
	p.end()
	os.Exit(code)
}

func (p *program) end() {
	for len(p.cleanups) > 0 {
		last := len(p.cleanups) - 1
		f := p.cleanups[last]
		p.cleanups = p.cleanups[:last]
		f()
	}
}
