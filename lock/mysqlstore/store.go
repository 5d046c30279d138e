package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Store keeps entries in MySQL or MariaDB. It is safe for concurrent use.
type Store struct {
	db         *sql.DB // of the work
	own        *sql.DB // the store's own connections; nil if unfit is set
	opened     *sql.DB // by Open, for the work; nil after New
	unfit      error   // the error of the configuration; nil if it can be used
	names      names
	statements statements

	closed   atomic.Bool
	keyTaken atomic.Bool            // the last claims have found an entry
	known    atomic.Pointer[server] // see Store.server

	out      func() *sql.DB // makes the *sql.Tx of the work
	sessions sessions       // of the work

	claims rowstore.Calls[*asked]
	calls  rowstore.Queue // for the store's own connections
	begins rowstore.Queue // for the connections of work
	gate   rowstore.Gate  // to the store's own connections
	sweeps rowstore.Sweeps
}

var (
	_ lock.Store      = (*Store)(nil)
	_ lock.Transactor = (*Store)(nil)
	_ lock.Inspector  = (*Store)(nil)
	_ lock.Describer  = (*Store)(nil)
)

// New returns a store in the database of db. With the configuration own, as mysql.ParseDSN returns
// it, the store opens a few connections of its own, so that renewals go on even if work holds
// every connection of db. [Store.Check] reports a configuration that leads to another server than
// db. The store copies own. New does not dial. It panics on nil.
func New(db *sql.DB, own *mysql.Config, opts ...Option) *Store {
	if db == nil {
		panic("mysqlstore.New: nil *sql.DB")
	}
	if own == nil {
		panic("mysqlstore.New: nil *mysql.Config")
	}
	n := namesOf(rowstore.Table("mysqlstore", opts), own.DBName)
	s := &Store{db: db, names: n, statements: newStatements(n), out: sync.OnceValue(out.DB)}
	s.claims.Serve, s.claims.Servers, s.claims.Waits = s.serveClaims, rowstore.OwnConnections, &s.calls
	var err error
	if s.own, err = openOwn(own, func() { s.known.Store(nil) }); err != nil {
		s.unfit = unfit("the configuration of the store's own connections: %w", err)
	}
	return s
}

// Open returns a store in the database of dsn, and makes its tables if they are missing. It opens
// a *sql.DB for the work ([Store.DB]) with the settings of dsn. Close closes it.
func Open(ctx context.Context, dsn string, opts ...Option) (*Store, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("mysqlstore: the DSN cannot be read: %w", err)
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("mysqlstore: %w", err)
	}
	s := New(sql.OpenDB(connector), cfg, opts...)
	s.opened = s.db
	return rowstore.Opened(ctx, s)
}

// Option is an option of [New] and [Open].
type Option interface{ rowstore.Option }

// WithTable sets the name of the table. If the table is in another database than the
// connections', write "shop.latch_entries". The default is "latch_entries". Names are quoted, so
// they are used exactly as written. WithTable panics if the name has more than two parts, or if one is
// empty, is not UTF-8, has a byte 0, ends with a space, or is longer than 48 bytes: the names that the
// store derives from it would be too long.
func WithTable(name string) Option {
	parts := strings.Split(name, ".")
	if len(parts) > 2 || slices.ContainsFunc(parts, func(part string) bool {
		return part == "" || len(part) > 48 || strings.Contains(part, "\x00") || !utf8.ValidString(part) || strings.HasSuffix(part, " ")
	}) {
		panic("mysqlstore: WithTable: " + name + ": at most one database stands before the name, each part is UTF-8 of 1 to 48 bytes, none is 0, and the last is no space")
	}
	return rowstore.TableName(name)
}

// DB returns the database that [Open] has opened, for the work; nil after [New].
func (s *Store) DB() *sql.DB { return s.opened }

// Close closes the store's own connections, and the database of Open. It waits for the calls in
// flight. Later calls fail.
func (s *Store) Close() {
	if s.closed.Swap(true) {
		return
	}
	s.claims.Close()
	s.gate.Wait()
	if s.own != nil {
		_ = s.own.Close()
	}
	_ = s.out().Close()
	if s.opened != nil {
		_ = s.opened.Close()
	}
}

// usable returns an error if the store has no connections.
func (s *Store) usable() error {
	if s.closed.Load() {
		return failure.NotApplied(rowstore.ErrClosed)
	}
	return s.unfit
}
