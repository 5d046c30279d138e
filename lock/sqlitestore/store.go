package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"modernc.org/sqlite"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Store keeps entries in two files of SQLite. It is safe for concurrent use.
type Store struct {
	db         *sql.DB // of the work
	opened     *sql.DB // by Open, for the work; nil after New
	statements statements
	out        func() *sql.DB         // makes the *sql.Tx of the work
	writer     chan struct{}          // has room for the one transaction of work that writes
	settles    atomic.Uint64          // number of receipts that were left in transactions
	file       atomic.Pointer[string] // the path of the database; nil until it is known

	closed    atomic.Bool
	queue     rowstore.Calls[queued]
	questions rowstore.Calls[execution]
	reads     *files // of the goroutine that answers questions

	// of the goroutine that serves calls
	files  *files
	served int // number of calls since the last sweep
}

var (
	_ lock.Store      = (*Store)(nil)
	_ lock.Transactor = (*Store)(nil)
	_ lock.Amender    = (*Store)(nil)
	_ lock.Inspector  = (*Store)(nil)
	_ lock.Describer  = (*Store)(nil)
)

// New returns a store in the database of db, whose driver has to be modernc.org/sqlite: with
// another driver, all calls return an error that says so. The store begins the transactions of
// the work on connections of db ([Tx]). New does not open a file: [Store.Check] reports problems.
// New panics on nil.
func New(db *sql.DB, opts ...Option) *Store {
	if db == nil {
		panic("sqlitestore.New: nil *sql.DB")
	}
	s := &Store{db: db, statements: newStatements(rowstore.Table("sqlitestore", opts)), out: sync.OnceValue(out.DB), writer: make(chan struct{}, 1)}
	s.queue.Serve, s.queue.Servers = s.serve, 1
	s.questions.Serve, s.questions.Servers = s.readReceipts, 1
	return s
}

// Open returns a store in the database file at path, which is no DSN. It makes the file and its table if they are
// missing. It opens a *sql.DB for the work ([Store.DB]): a commit on it waits for the disk, and a
// connection waits for a lock for 5 s. Close closes the *sql.DB.
func Open(ctx context.Context, path string, opts ...Option) (*Store, error) {
	absolute, err := filepath.Abs(path)
	switch _, query, _ := strings.Cut(path, "?"); {
	case err != nil, path == "", path == ":memory:":
		return nil, errors.Join(errMemory, err)
	case strings.HasPrefix(path, "file:"), strings.Contains(query, "="):
		return nil, errDSN
	}
	db, err := openFile(absolute, "synchronous(FULL)", "busy_timeout(5000)")
	if err != nil {
		return nil, failure.Of(err)
	}
	s := New(db, opts...)
	s.opened = db
	return rowstore.Opened(ctx, s)
}

// openFile returns the database at an absolute path, with pragmas for each connection.
func openFile(path string, pragmas ...string) (*sql.DB, error) {
	name := url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: url.Values{"_pragma": pragmas}.Encode()}
	connector, err := sqlite.NewConnector(name.String())
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// Option is an option of [New] and [Open].
type Option interface{ rowstore.Option }

// WithTable sets the name of the table, "latch_entries" by default. The name is quoted, so it is
// used exactly as written. Stores with different tables in one file share no entries. It panics if
// the name is empty, is not UTF-8, has a byte 0, or begins with "sqlite_", as SQLite's own tables
// do.
func WithTable(name string) Option {
	if name == "" || !utf8.ValidString(name) || strings.ContainsRune(name, 0) || strings.HasPrefix(strings.ToLower(name), "sqlite_") {
		panic("sqlitestore: WithTable: " + name + ": the name is UTF-8 without a byte 0, not empty, and does not begin with sqlite_")
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
	s.questions.Close()
	s.queue.Close()
	s.reads.close()
	s.files.close()
	_ = s.out().Close()
	if s.opened != nil {
		_ = s.opened.Close()
	}
}

var (
	errDSN    = fmt.Errorf("%w: %w: sqlitestore: Open takes the path of a file, and this is a DSN: pass its path, or open the DSN with sql.Open, and pass the *sql.DB to New", lock.ErrNotApplied, lock.ErrDenied)
	errMemory = fmt.Errorf("%w: %w: sqlitestore: the database is not in a file: name one, or use memstore, which is quicker", lock.ErrNotApplied, lock.ErrDenied)
)
