// Package parallel runs tests in parallel to others.
package parallel

import (
	"testing"
	"testing/synctest"
)

// Run runs f as a subtest.
func Run(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		f(t)
	})
}

// Bubble runs f, the whole of a test, in virtual time.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}
