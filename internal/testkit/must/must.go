// Package must has the answers of stores and Lockers that a test relies on. Each function is called as
// must.Entry(t)(s.Get(ctx, key)), except Get, which is called as must.Get(os.ReadFile(name))(t), and Err.
package must

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// Get returns the value of a call that must not fail.
func Get[T any](value T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return value
	}
}

// Entry returns the entry of a call that must not fail.
func Entry(tb testing.TB) func(lock.Entry, error) lock.Entry {
	tb.Helper()
	return func(e lock.Entry, err error) lock.Entry {
		tb.Helper()
		require.NoError(tb, err)
		return e
	}
}

// Yes requires the answer yes.
func Yes(tb testing.TB) func(ok bool, err error) { tb.Helper(); return answers(tb, true) }

// No requires the answer no.
func No(tb testing.TB) func(ok bool, err error) { tb.Helper(); return answers(tb, false) }

func answers(tb testing.TB, want bool) func(ok bool, err error) {
	tb.Helper()
	return func(ok bool, err error) {
		tb.Helper()
		require.NoError(tb, err)
		require.Equal(tb, want, ok)
	}
}

// Run requires that a call of Once has run its work.
func Run(tb testing.TB) func(receipt []byte, replayed bool, err error) (answer string) {
	tb.Helper()
	return once(tb, false)
}

// Replay requires that a call of Once was answered by an earlier receipt.
func Replay(tb testing.TB) func(receipt []byte, replayed bool, err error) (answer string) {
	tb.Helper()
	return once(tb, true)
}

func once(tb testing.TB, want bool) func([]byte, bool, error) string {
	tb.Helper()
	return func(receipt []byte, replayed bool, err error) string {
		tb.Helper()
		require.NoError(tb, err)
		require.Equal(tb, want, replayed, "replayed")
		return string(receipt)
	}
}

// Err returns the error of a call whose value does not matter.
func Err[T any](_ T, err error) error { return err }
