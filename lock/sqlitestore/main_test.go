package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("LATCH_TEST_OPEN_FILE"); path != "" {
		runOpen(path)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// open returns a store over a file, with its tables.
func open(tb testing.TB, path string, opts ...sqlitestore.Option) *sqlitestore.Store {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	s, err := sqlitestore.Open(ctx, path, opts...)
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	return s
}

// runOpen opens a store and claims a key, and prints the class and the text of the error.
func runOpen(path string) {
	s, err := sqlitestore.Open(context.Background(), path)
	if err == nil {
		_, err = s.Claim(context.Background(), "k", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute})
		s.Close()
	}
	_, _ = fmt.Fprintln(os.Stdout, errors.Is(err, lock.ErrDenied), lock.Class(err), err)
}

// file returns the path of a file of the test's own.
func file(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "shop.db")
}
