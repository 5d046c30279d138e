package pgstore_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/handover"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

const shortLease = 50 * time.Millisecond

// The store is the same over each driver and protocol. Behind PgBouncer, see TestSettingsBehindPgBouncer.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]func(t *testing.T) *pgstore.Store{
		"pgx":          func(t *testing.T) *pgstore.Store { t.Helper(); return pgstore.New(newPool(t, database(t))) },
		"database/sql": func(t *testing.T) *pgstore.Store { t.Helper(); return pgstore.NewSQL(openSQL(t, database(t))) },
		"the simple protocol": func(t *testing.T) *pgstore.Store {
			t.Helper()
			return pgstore.New(newPool(t, database(t)+"&default_query_exec_mode=simple_protocol"))
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			store := over(t)
			t.Cleanup(store.Close)
			migrate(t, store)
			latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return store })
		})
	}
}

// Renewals of records are in rows of their own.
func TestConformanceOfRecords(t *testing.T) {
	t.Parallel()
	store := newStore(t, newPool(t, database(t)))
	latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return records{store} })
}

// records is a store whose keys are all of records.
type records struct{ store *pgstore.Store }

var _ interface {
	lock.Store
	lock.Transactor
	lock.Amender
	lock.Inspector
} = records{}

func (r records) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return r.store.Claim(ctx, keytext.RecordPrefix+key, c)
}

func (r records) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return r.store.Renew(ctx, keytext.RecordPrefix+key, c)
}

func (r records) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	return r.store.Settle(ctx, keytext.RecordPrefix+key, c, receipt, keep)
}

func (r records) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return r.store.Release(ctx, keytext.RecordPrefix+key, c)
}

func (r records) Get(ctx context.Context, key string) (lock.Entry, error) {
	return r.store.Get(ctx, keytext.RecordPrefix+key)
}

func (r records) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	return r.store.Begin(ctx, keytext.RecordPrefix+key, token)
}

func (r records) Amend(ctx context.Context, key, token string, from, to []byte) (bool, error) {
	return r.store.Amend(ctx, keytext.RecordPrefix+key, token, from, to)
}

func (r records) Forget(ctx context.Context, key, token string) (bool, error) {
	return r.store.Forget(ctx, keytext.RecordPrefix+key, token)
}

func (r records) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for e, err := range r.store.List(ctx) {
			e.Key = strings.TrimPrefix(e.Key, keytext.RecordPrefix)
			if !yield(e, err) {
				return
			}
		}
	}
}

func (r records) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) ([]lock.Entry, string, error) {
	page, next, err := r.store.Page(ctx, cursor, limit, func(key string) bool {
		return match == nil || match(strings.TrimPrefix(key, keytext.RecordPrefix))
	})
	for i := range page {
		page[i].Key = strings.TrimPrefix(page[i].Key, keytext.RecordPrefix)
	}
	return page, next, err
}

func TestJobs(t *testing.T) {
	t.Parallel()
	for over, open := range shops {
		parallel.Run(t, over, func(t *testing.T) {
			sqlshop.TestJobs(t, func(t *testing.T) *sqlshop.Shop { t.Helper(); return open(t).Shop })
		})
	}
}

// A key goes from one process to another over a real server.
func TestKeyIsHandedOver(t *testing.T) {
	t.Parallel()
	url := database(t)
	migrate(t, newStore(t, newPool(t, url)))
	handover.Test(t, func(t *testing.T) lock.Store {
		t.Helper()
		return newStore(t, newPool(t, url))
	})
}
