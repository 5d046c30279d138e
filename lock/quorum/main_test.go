package quorum_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	key    = "user=42"
	lease  = 3 * time.Second
	budget = 300 * time.Millisecond
	keep   = time.Hour
)

var (
	quiet  = slog.New(slog.DiscardHandler)
	print1 = []byte("request 1")
)

// lockerOver is closed when the test ends.
func lockerOver(t *testing.T, s lock.Store, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(s, append([]lock.Option{lock.WithLogger(quiet), lock.WithBudget(10 * time.Second)}, opts...)...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	return l
}
