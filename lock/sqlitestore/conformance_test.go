package sqlitestore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/handover"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

const shortLease = 50 * time.Millisecond

func TestConformance(t *testing.T) {
	t.Parallel()
	store := open(t, file(t))
	latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return store })
}

// Two stores, as two processes have them, are one for their callers.
func TestConformanceOfTwoOnOneFile(t *testing.T) {
	t.Parallel()
	path := file(t)
	two := &alternating{Store: open(t, path), other: open(t, path)}
	latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return two })
}

// alternating makes each second claim, and each second end of one, on another store.
type alternating struct {
	*sqlitestore.Store

	other *sqlitestore.Store
	calls atomic.Uint64
}

func (a *alternating) next() *sqlitestore.Store {
	if a.calls.Add(1)%2 == 0 {
		return a.other
	}
	return a.Store
}

func (a *alternating) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return a.next().Claim(ctx, key, c)
}

func (a *alternating) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	return a.next().Settle(ctx, key, c, receipt, keep)
}

func (a *alternating) Amend(ctx context.Context, key, token string, from, to []byte) (bool, error) {
	return a.next().Amend(ctx, key, token, from, to)
}

func (a *alternating) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	return a.next().Begin(ctx, key, token)
}

// A key goes from one process to another over one file.
func TestKeyIsHandedOver(t *testing.T) {
	t.Parallel()
	path := file(t)
	handover.Test(t, func(t *testing.T) lock.Store {
		t.Helper()
		return open(t, path)
	})
}
