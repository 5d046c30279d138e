// Package host lets a program use what this repository has for tests: servers
// and proxies that end with the test that started them.
package host

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// Host stands in for a test. Of the methods of [testing.TB] it has those that
// starting a server takes; the rest panic. Those that end a test are for the
// goroutine of [Run] alone.
type Host struct {
	testing.TB

	cleanups []func()
}

// failure is what ends a Run early.
type failure string

// Run calls f, and then what f has asked to be cleaned up, the last first. The
// error is what f has called Fatal with.
func Run(f func(h *Host) error) (err error) {
	h := &Host{}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = errors.New(string(p))
		default:
			panic(p)
		}
	}()
	defer h.cleanup()
	return f(h)
}

func (h *Host) cleanup() {
	for _, f := range slices.Backward(h.cleanups) {
		f()
	}
}

// Helper does nothing.
func (*Host) Helper() {}

// Cleanup lets f be called when Run ends.
func (h *Host) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }

// Fatal ends Run.
func (*Host) Fatal(args ...any) { panic(failure(fmt.Sprint(args...))) }

// Fatalf ends Run.
func (*Host) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

// Skipf ends Run: without the server there is nothing to go on with.
func (*Host) Skipf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }
