// Package testmain ends a resource that the tests of a process share, such as
// one server for all of them, when the tests have run.
package testmain

import (
	"os"
	"strings"
	"sync"
	"testing"
)

// Runner is a [testing.M], or a wrapper of one.
type Runner interface{ Run() int }

// After wraps m so that end is called when the tests have run.
func After(m Runner, end func()) Runner { return after{m, end} }

type after struct {
	tests Runner
	end   func()
}

func (a after) Run() int {
	defer a.end()
	return a.tests.Run()
}

// Shared is made at the first call of Get, and ends with the tests of the
// process: TestMain has to use Main.
type Shared[T any] struct {
	mu      sync.Mutex
	mained  bool
	made    bool
	value   T
	end     func() // nil if it could not be made
	failure error
}

// Main wraps m so that the shared value ends when the tests have run.
func (s *Shared[T]) Main(m Runner) Runner { return sharing[T]{s, After(m, s.stop)} }

type sharing[T any] struct {
	shared *Shared[T]
	tests  Runner
}

func (s sharing[T]) Run() int {
	s.shared.mu.Lock()
	s.shared.mained = true
	s.shared.mu.Unlock()
	return s.tests.Run()
}

func (s *Shared[T]) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		s.end()
	}
	s.made, s.end = false, nil
}

// Get returns the value, which the first call makes. It ends the test if this
// call failed. If TestMain does not use Main, it ends the test with the text
// needs, such as "redistest: Shared needs a TestMain that uses redistest.Main".
func (s *Shared[T]) Get(tb testing.TB, needs string, launch func() (value T, end func(), err error)) T {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mained {
		tb.Fatal(needs)
	}
	if !s.made {
		s.value, s.end, s.failure = launch()
		s.made = true
	}
	if s.failure != nil {
		tb.Fatal(s.failure)
	}
	return s.value
}

// Unavailable ends a test that lacks a program: it is skipped, but a build
// machine (CI=true) must not pass by skipping.
func Unavailable(tb testing.TB, howToInstall string, err error) {
	tb.Helper()
	if os.Getenv("CI") == "true" {
		tb.Fatalf("%s\n%v", howToInstall, err)
	}
	why, _, _ := strings.Cut(howToInstall, "\n")
	noteLeftOut(tb, "missing: "+why)
	tb.Skipf("SKIPPED, %s\n%v", howToInstall, err)
}
