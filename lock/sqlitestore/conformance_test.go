package sqlitestore_test

import (
	"context"
	"iter"
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
	two := &alternating{stores: [2]*sqlitestore.Store{open(t, path), open(t, path)}}
	latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return two })
}

// alternating makes each call on the other one of two stores.
type alternating struct {
	stores [2]*sqlitestore.Store
	calls  atomic.Uint64
}

func (a *alternating) next() *sqlitestore.Store { return a.stores[a.calls.Add(1)%2] }

func (a *alternating) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return a.next().Claim(ctx, key, c)
}

func (a *alternating) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return a.next().Renew(ctx, key, c)
}

func (a *alternating) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	return a.next().Settle(ctx, key, c, receipt, keep)
}

func (a *alternating) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return a.next().Release(ctx, key, c)
}

func (a *alternating) Get(ctx context.Context, key string) (lock.Entry, error) {
	return a.next().Get(ctx, key)
}

func (a *alternating) Amend(ctx context.Context, key, token string, from, to []byte) (bool, error) {
	return a.next().Amend(ctx, key, token, from, to)
}

func (a *alternating) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	return a.next().Begin(ctx, key, token)
}

func (a *alternating) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return a.next().List(ctx)
}

func (a *alternating) Forget(ctx context.Context, key, token string) (bool, error) {
	return a.next().Forget(ctx, key, token)
}

func (a *alternating) Page(ctx context.Context, cursor string, limit int, match func(string) bool) ([]lock.Entry, string, error) {
	return a.next().Page(ctx, cursor, limit, match)
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
