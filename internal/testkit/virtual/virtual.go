// Package virtual runs tests in virtual time.
package virtual

import (
	"testing"
	"testing/synctest"
)

// Run runs the body of a test, at the same time as other tests.
func Run(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, body)
}

// Test returns the body of a subtest.
func Test(body func(t *testing.T)) func(*testing.T) {
	return func(t *testing.T) { t.Helper(); synctest.Test(t, body) }
}
