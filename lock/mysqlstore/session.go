package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// session is a connection during one transaction of work.
type session struct {
	rowstore.Work

	store *Store
	id    int64 // of the server's session

	begun  bool  // the transaction has begun
	endErr error // the reason if the transaction has ended before its work, else nil
	mark   int64 // number of a row that the work's transaction has written; 0 if there is none

	demoted bool // its connection leads to a server that is no longer the primary
}

// savepoint is made at the beginning of the transaction, and released before the receipt is
// written. When the transaction has ended, by a commit or a rollback, the server no longer has the
// savepoint, and the release fails. Without it, the store would not notice that a deadlock had
// rolled back the transaction, and that the server commits each later statement at once.
const savepoint = "latch_work"

const (
	begin     = "START TRANSACTION"
	setPoint  = "SAVEPOINT " + savepoint
	dropPoint = "RELEASE SAVEPOINT " + savepoint
	// Whatever completion_type is: no other transaction follows, and the connection stays.
	commit   = "COMMIT AND NO CHAIN NO RELEASE"
	rollback = "ROLLBACK AND NO CHAIN NO RELEASE"
)

func (s *Store) newSession(ctx context.Context) (w *session, err error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	w = &session{store: s}
	if err := w.takeConnection(ctx); err != nil {
		return nil, err
	}
	return w, w.Lend(ctx, s.out(), out, func(ctx context.Context, text string) error { return w.ready(ctx, kindOf(text)) })
}

func (w *session) takeConnection(ctx context.Context) error {
	err := w.Connect(ctx, w.store.db, func(conn any) error {
		if _, is := w.store.db.Driver().(*mysql.MySQLDriver); !is || w.Conn == nil {
			return unfit("New needs a *sql.DB of github.com/go-sql-driver/mysql, sql.Open(\"mysql\", dsn), and this one has connections of type %T", conn)
		}
		return nil
	})
	if err != nil && !errors.Is(err, lock.ErrDenied) {
		err = dialError(err)
	}
	return err
}

// valid reports whether the connection has not ended.
func (w *session) valid() bool { return w.Conn.(driver.Validator).IsValid() } //nolint:errcheck,forcetypeassert // the driver's

// sessions keeps the server's number of each session.
type sessions struct {
	mu  sync.Mutex
	ids map[driver.Conn]int64
}

// id returns the number of the session of w. A connection does not report its end, so the numbers are
// forgotten when there are twice as many as the pool has connections.
func (s *sessions) id(ctx context.Context, w *session) (id int64, err error) {
	s.mu.Lock()
	id, ok := s.ids[w.Conn]
	s.mu.Unlock()
	if ok {
		return id, nil
	}
	if err := w.User.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil || len(s.ids) > 2*w.store.db.Stats().OpenConnections {
		s.ids = make(map[driver.Conn]int64)
	}
	s.ids[w.Conn] = id
	return id, nil
}

func (w *session) exec(ctx context.Context, statement string) (driver.Result, error) {
	result, err := w.Conn.ExecContext(ctx, statement, nil)
	return result, w.see(err)
}

// see notes an error of a server that is no longer the primary, and returns it.
func (w *session) see(err error) error {
	w.demoted = w.demoted || isDemoted(err)
	return err
}

// together executes statements until one fails, and returns the result of the last. MariaDB gets them
// in one round trip.
func (w *session) together(ctx context.Context, statements ...string) (result driver.Result, err error) {
	if is := w.store.known.Load(); is != nil && is.compounds && len(statements) > 1 {
		return w.exec(ctx, "BEGIN NOT ATOMIC "+strings.Join(statements, "; ")+"; END")
	}
	for _, statement := range statements {
		if result, err = w.exec(ctx, statement); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// ready begins the transaction for the first statement. Later it returns an error if the server has
// ended the transaction: the statement would be committed at once.
func (w *session) ready(ctx context.Context, how kind) error {
	if how == ending {
		return errWouldEnd
	}
	if !w.begun && w.endErr == nil {
		if err := w.begin(ctx); err != nil {
			w.endErr = failure.Transient(failure.Classed(err))
		}
	}
	if how == plain && w.StmtErr == nil {
		return w.settled(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := w.settled(ctx); err != nil || how == plain {
		return err
	}
	return w.writeMark(ctx)
}

// answerTime bounds the statements of the store itself on a connection of the work. A server that
// is gone, or a network that has forgotten the connection, may never answer.
const answerTime = time.Second

// begin begins the transaction. If the first connection fails, no statement of the work was sent on
// it, and a new one may work.
func (w *session) begin(ctx context.Context) error {
	err := w.beginHere(ctx)
	if err == nil {
		return nil
	}
	discard(w.User) // it may be in a transaction
	if ctx.Err() != nil {
		return err
	}
	discardIdle(ctx, w.store.db)
	w.demoted = false
	waits, cancel := context.WithTimeout(ctx, 2*rowstore.LongestWait)
	defer cancel()
	if err := w.takeConnection(waits); err != nil {
		return err
	}
	return w.beginHere(ctx)
}

func (w *session) beginHere(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, err = w.together(ctx, begin, setPoint); err == nil {
		w.id, err = w.store.sessions.id(ctx, w)
	}
	w.begun = err == nil
	return err
}

// settled returns an error if the transaction has ended.
func (w *session) settled(ctx context.Context) error {
	switch _ = w.see(w.StmtErr); {
	case w.endErr != nil:
	case !w.valid():
		w.endErr = failure.Transient(errSessionEnded)
	case w.StmtErr == nil:
		return nil
	case slices.Contains([]uint16{errDeadlock, errRecordChanged, 1206}, number(w.StmtErr)): // it has rolled back
		w.endErr = failure.Transient(fmt.Errorf("%w: %w", errUndone, failure.Classed(w.StmtErr)))
	case w.open(ctx):
		switch committed, err := w.markCommitted(ctx); {
		case err != nil:
			w.endErr = failure.Transient(err)
		case committed:
			w.endErr = failure.Permanent(errEnded)
		default:
			w.StmtErr = nil
		}
	default:
		w.endErr = failure.Transient(fmt.Errorf("%w: %w", errUndone, failure.Classed(w.StmtErr)))
		if w.mark != 0 && errors.Is(w.StmtErr, errUnclear) {
			w.endErr = failure.Permanent(errEnded)
		}
	}
	return w.endErr
}

// open reports whether a transaction is open. Without one, the server forgets a savepoint at once.
func (w *session) open(ctx context.Context) bool {
	_, err := w.exec(ctx, "SAVEPOINT latch_probe")
	if err == nil {
		_, err = w.exec(ctx, "RELEASE SAVEPOINT latch_probe")
	}
	return err == nil
}

// writeMark prepares for a statement that may end the transaction. It writes a row, which shows
// afterwards whether the transaction was committed. Before the next statement, ready checks that
// the transaction is still open.
func (w *session) writeMark(ctx context.Context) error {
	if w.mark == 0 {
		result, err := w.exec(ctx, w.store.statements.drawFence)
		if err == nil {
			w.mark, err = result.LastInsertId()
		}
		if err != nil {
			return failure.Transient(failure.Classed(err))
		}
	}
	w.StmtErr = errUnclear
	return nil
}

// markCommitted reports whether a mark was committed. An open transaction is then another one.
func (w *session) markCommitted(ctx context.Context) (committed bool, err error) {
	if w.mark != 0 {
		err = w.store.withOwn(ctx, rowstore.First, func(conn *sql.Conn) error {
			return conn.QueryRowContext(ctx, text(w.store.statements.marked, w.mark)).Scan(&committed)
		})
	}
	return committed, err
}

var errUnclear = errors.New("a statement that may have ended the transaction")

// end gives the connection back. A connection that may be in a transaction is closed, and the
// server rolls back.
func (w *session) end(ctx context.Context, committed bool) {
	w.Stop()
	_ = w.see(w.StmtErr)
	if w.User == nil {
		return
	}
	if w.begun && !committed {
		if _, err := w.exec(ctx, rollback); err != nil {
			discard(w.User)
		}
	}
	if w.demoted || !w.valid() {
		discard(w.User)
	}
	_ = w.User.Close()
	w.User = nil
	if w.demoted {
		discardIdle(ctx, w.store.db)
	}
}

type txKey struct{}

// Tx returns the transaction of the work whose context is ctx. Its changes are committed with the
// receipt, or not at all. ok is false outside of a run of [lock.Locker.Once] with
// [lock.WithTransaction].
//
// Commit and Rollback of tx return an error, and so do statements that would end the transaction,
// such as ALTER TABLE. To roll back, return an error, or send an answer that is not kept. A
// deferred Rollback does no harm. Savepoints work. The isolation level is the one of the database.
func Tx(ctx context.Context) (tx *sql.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

var errWouldEnd = errors.New("mysqlstore: the statement would end the work's transaction, or change its clock: run it outside of the work; " +
	"to have all rolled back, return an error, or an answer that is not kept")

// out makes the work's *sql.Tx, whose one connection is its session.
const out = rowstore.Lender("mysqlstore")

// kind is the effect of a text on the work's transaction.
type kind uint8

const (
	plain   kind = iota // none of its statements ends it
	unclear             // one of them may end it, such as CALL
	ending              // one of them ends it, or changes the clock of the receipt
)

// word matches a quoted text, a comment, a semicolon or a word.
var word = regexp.MustCompile("(?s)'(?:[^'\\\\]|\\\\.)*(?:'|$)|\"(?:[^\"\\\\]|\\\\.)*(?:\"|$)|`[^`]*(?:`|$)|--(?:[\\s\\x00-\\x1f][^\n]*|$)|#[^\n]*|/\\*.*?(?:\\*/|$)|;|[\\pL\\d_$@]+")

// plainWords are the first words of statements that never commit. A word that is in neither list
// is unclear.
var plainWords = strings.Fields(`SELECT INSERT UPDATE DELETE REPLACE WITH VALUES VALUE TABLE SET SHOW EXPLAIN DESCRIBE DESC
	SAVEPOINT RELEASE DO USE HANDLER PREPARE DEALLOCATE KILL CHECKSUM HELP`)

// endingWords are the first words of statements that commit the statements before them, or roll
// them back.
var endingWords = strings.Fields(`COMMIT ROLLBACK BEGIN START ALTER CREATE DROP TRUNCATE RENAME GRANT REVOKE LOCK UNLOCK ANALYZE
	OPTIMIZE REPAIR CHECK FLUSH RESET CACHE INSTALL UNINSTALL CHANGE STOP PURGE XA IMPORT`)

// endingSettings are the settings that work must not change, and DEFAULT ROLE, which commits.
var endingSettings = []string{"AUTOCOMMIT", "PASSWORD", "TIMESTAMP", "ROLE"}

// kindOf returns the kind of a text of SQL, which may contain several statements. It returns
// unclear if the server's settings or version decide which parts are quoted or comments.
func kindOf(text string) kind {
	executes := strings.Contains(text, "/*!") || strings.Contains(text, "/*M!") || strings.Contains(text, "/*m!")
	several := rowstore.Several(text)
	if first := rowstore.FirstWord(text); !executes && !several && first != "SET" && slices.Contains(plainWords, first) {
		return plain // without a look at the rest, which may have megabytes
	}
	how := plain
	if executes || several && strings.ContainsAny(text, `\"`) {
		how = unclear
	}
	for _, statement := range rowstore.Statements(word, text) {
		how = max(how, kindOfStatement(statement))
	}
	return how
}

func kindOfStatement(statement []string) kind {
	if len(statement) == 0 {
		return plain
	}
	first := statement[0]
	switch of := strings.TrimPrefix(strings.Join(statement[1:min(5, len(statement))], " ")+" ", "OR REPLACE "); {
	case first == "ROLLBACK" && strings.HasPrefix(strings.TrimPrefix(of, "WORK "), "TO "),
		(first == "CREATE" || first == "DROP") && strings.HasPrefix(of, "TEMPORARY TABLE "):
		return plain
	case first == "SET" && strings.HasPrefix(of, "STATEMENT "):
		return unclear // FOR any statement
	case first == "SET" && slices.ContainsFunc(statement, func(w string) bool { return slices.Contains(endingSettings, strings.Trim(w, "@`")) }):
		return ending
	case slices.Contains(endingWords, first):
		return ending
	case slices.Contains(plainWords, first):
		return plain
	default:
		return unclear
	}
}
