package pgstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

const shortLease = 50 * time.Millisecond

func TestConformance(t *testing.T) {
	t.Parallel()
	store := newStore(t, newPool(t, database(t)))
	latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return store })
}

func TestConformanceOfSQL(t *testing.T) {
	t.Parallel()
	store := pgstore.NewSQL(openSQL(t, database(t)))
	t.Cleanup(store.Close)
	migrate(t, store)
	latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return store })
}

func TestConformanceOverTheSimpleProtocol(t *testing.T) {
	t.Parallel()
	store := newStore(t, newPool(t, database(t), func(cfg *pgxpool.Config) {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	}))
	latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return store })
}

func TestConformanceBehindPgBouncer(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	store := newStore(t, newPool(t, bounced(t, c.Addr())(c.Database(t))))
	latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return store })
}
