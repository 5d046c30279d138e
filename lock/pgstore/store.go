package pgstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Store keeps entries in PostgreSQL. It is safe for concurrent use.
type Store struct {
	names      names
	statements statements
	workPool   *pgxpool.Pool // opened by Open; nil after New
	closeWork  func()        // closes what makes the *sql.Tx of the work; nil after New

	newSession func(ctx context.Context) (*session, error)        // takes a connection for a transaction of work
	config     func(ctx context.Context) (*pgxpool.Config, error) // of the store's own connections
	renew      func(ctx context.Context, try func() error) error  // tries with other settings than the rejected ones; nil if there are none

	opening chan struct{}                // has room for the one call that opens pool
	pool    atomic.Pointer[pgxpool.Pool] // the store's own connections; nil before the first call
	closed  atomic.Bool

	inside atomic.Pointer[insideStatements] // nil until the table was looked up

	keep     atomic.Int64  // the keep of the latest receipt in a transaction, in microseconds
	claims   atomic.Uint64 // number of claims
	keyTaken atomic.Bool   // the last claim has found an entry

	calls  rowstore.Queue // for the store's own connections
	gate   rowstore.Gate  // to the store's own connections
	begins rowstore.Queue // for the connections of work
	sweeps rowstore.Sweeps
}

var (
	_ lock.Store      = (*Store)(nil)
	_ lock.Transactor = (*Store)(nil)
	_ lock.Amender    = (*Store)(nil)
	_ lock.SetClaimer = (*Store)(nil)
	_ lock.Inspector  = (*Store)(nil)
	_ lock.Describer  = (*Store)(nil)
)

// New returns a store in the database of pool. The transactions of the work use connections of
// pool. New does not dial: [Store.Check] reports problems. For a pool whose idle connections may be
// dropped without an end, see [PingIdle]. It panics on nil.
func New(pool *pgxpool.Pool, opts ...Option) *Store {
	if pool == nil {
		panic("pgstore.New: nil *pgxpool.Pool")
	}
	s := newStore(opts)
	s.newSession = func(ctx context.Context) (*session, error) { return poolSession(ctx, pool) }
	s.config = func(context.Context) (*pgxpool.Config, error) { return pool.Config(), nil }
	return s
}

// NewSQL returns a store in the database of db, whose driver has to be pgx's for
// package database/sql, github.com/jackc/pgx/v5/stdlib: with another driver, all calls return an
// error that says so. The transactions of the work use connections of db ([SQLTx]). NewSQL does
// not dial. It panics on nil.
//
// The store makes its own connections with the settings of a connection of db, including changes
// by stdlib.OptionBeforeConnect. When the server rejects these settings, because a password has
// changed, the store takes the settings of a younger connection of db. The store's own
// connections do not run stdlib.OptionAfterConnect, and so lack its session settings, such as a
// search_path.
func NewSQL(db *sql.DB, opts ...Option) *Store {
	if db == nil {
		panic("pgstore.NewSQL: nil *sql.DB")
	}
	s := newStore(opts)
	lender := sync.OnceValue(out.DB)
	s.newSession = func(ctx context.Context) (*session, error) { return sqlSession(ctx, db, lender()) }
	s.closeWork = func() { _ = lender().Close() }
	settings := &sqlSettings{db: db, learning: make(chan struct{}, 1)}
	s.config, s.renew = settings.config, settings.renew
	return s
}

// Open returns a store with its own pool in the database of url, and makes the table if it is
// missing. The query of url may have settings of pgx, such as pool_max_conns. Close closes the
// pool.
func Open(ctx context.Context, url string, opts ...Option) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("pgstore: the URL cannot be read: %w", err)
	}
	cfg.ShouldPing = PingIdle()
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	s := New(pool, opts...)
	s.workPool = pool
	return rowstore.Opened(ctx, s)
}

// Option is an option of [New], [NewSQL] and [Open].
type Option interface{ rowstore.Option }

// WithTable sets the name of the table. If the search path does not find the table, write
// "shop.latch_entries". The default is "latch_entries". Names are quoted, so they are used
// exactly as written. WithTable panics if the name has more than two parts, or if one is empty, is not UTF-8,
// has a byte 0, or is longer than 48 bytes: PostgreSQL would truncate the names that the store derives from it.
func WithTable(name string) Option {
	parts := strings.Split(name, ".")
	if len(parts) > 2 || slices.ContainsFunc(parts, func(part string) bool {
		return part == "" || len(part) > 48 || strings.ContainsRune(part, 0) || !utf8.ValidString(part)
	}) {
		panic("pgstore: WithTable: " + name + ": at most one schema stands before the name, each part is UTF-8 of 1 to 48 bytes, and none is 0")
	}
	return rowstore.TableName(name)
}

func newStore(opts []Option) *Store {
	n := namesOf(rowstore.Table("pgstore", opts))
	return &Store{names: n, statements: newStatements(n), opening: make(chan struct{}, 1)}
}

// Pool returns the pool that [Open] has opened, for the work; nil after [New].
func (s *Store) Pool() *pgxpool.Pool { return s.workPool }

// Close closes the store's own connections, and the pool of Open. It waits for the
// calls in flight. Later calls fail.
func (s *Store) Close() {
	s.closed.Store(true)
	if pool := s.pool.Load(); pool != nil {
		pool.Close()
	}
	if s.workPool != nil {
		s.workPool.Close()
	}
	if s.closeWork != nil {
		s.closeWork()
	}
}

// insideStatements are executed in a transaction of work. They name the table with its schema: the
// work may have set another search_path.
type insideStatements struct {
	settle string // leaves the receipt
	amend  string // replaces a receipt
}

// located returns the statements for a transaction of work. The first call looks up the schema.
func (s *Store) located(ctx context.Context) (*insideStatements, error) {
	if known := s.inside.Load(); known != nil {
		return known, nil
	}
	n := s.names
	err := s.each(ctx, rowstore.First, s.statements.location, func(rows pgx.Rows) error { return rows.Scan(&n.table) })
	if err != nil {
		return nil, err
	}
	known := &insideStatements{settle: n.settleInside(), amend: n.amend()}
	s.inside.Store(known)
	return known, nil
}

// Describe is part of [lock.Describer].
func (s *Store) Describe() lock.Description { return lock.Description{MaxLag: maxLag, Check: s.Check} }

// maxLag bounds how long a statement without an answer can still take effect. A session that has
// lost its client ends when the server next reads from it or writes to it. Until then, only the
// statement that the server has already read can take effect, perhaps after a wait for a row
// lock. A transaction of work holds a row lock until it ends.
const maxLag = 2 * time.Minute
