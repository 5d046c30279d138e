package pgstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

// session is a connection during one transaction of work.
type session struct {
	conn      *pgx.Conn
	tx        pgx.Tx       // nil until BEGIN was sent
	begun     bool         // the server was in the transaction: the answer to BEGIN may still be open
	committed bool         // the work has sent its own COMMIT, which was answered
	undone    bool         // the work has ended the transaction, and nothing was committed
	parts     atomic.Int64 // number of savepoints
	over      atomic.Bool
	used      sync.Mutex  // by a call of the work; by the end of the session after it
	inUse     bool        // a call was in progress when the work ended
	late      bool        // the call was still in progress when the time was over
	leftOpen  atomic.Bool // rows of database/sql were open when the work ended
	cut       bool        // the connection was closed without the driver

	connect  func(ctx context.Context) error           // sets conn and giveBack
	carried  func(ctx context.Context) context.Context // returns the context of the work
	takeBack func()                                    // ends the *sql.Tx of the work
	giveBack func(broken bool)                         // ends the use of conn; nil once it was called
}

// The mark is a session setting that the store makes when it begins the transaction. A ROLLBACK
// by the work removes the mark, and a COMMIT by the work keeps it. The statement that writes the
// receipt fails without the mark, and then removes it. Setting the mark takes no snapshot, so the
// work can still choose its isolation level.
//
// Each connection has a mark of its own, and is closed after work that may have left its mark in the
// server's session: behind PgBouncer, that session then serves other connections.
const marked = "current_setting('latch.work', true) = "

// markOf returns the mark of conn.
func markOf(conn *pgx.Conn) string {
	data := conn.PgConn().CustomData()
	m, known := data[markKey].(string)
	if !known {
		m = rand.Text()
		data[markKey] = m
	}
	return m
}

// setMark returns the statement that sets the mark.
func (s *session) setMark() string { return "set latch.work = '" + markOf(s.conn) + "'" }

// begin sends BEGIN for the first statement of the work. It fails if the work has rolled back
// since then: each later statement would be committed at once.
func (s *session) begin(ctx context.Context) (pgx.Tx, error) {
	switch {
	case s.over.Load():
		return nil, pgx.ErrTxClosed
	case s.ended():
		if kept, err := s.kept(ctx); !kept {
			return nil, fmt.Errorf("pgstore: the work's transaction is over: %w", errors.Join(errEnded, err))
		}
	}
	if s.tx != nil {
		s.begun = s.begun || s.conn.PgConn().TxStatus() != 'I'
		return s.tx, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for {
		tx, err := s.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: "begin; " + s.setMark()})
		if err == nil {
			s.tx, s.begun = tx, true
			return tx, nil
		}
		// Whatever a closed connection has sent with BEGIN is not committed, so another connection can
		// begin: a restart of the server has closed all that were idle.
		if !s.conn.IsClosed() || ctx.Err() != nil {
			return nil, err
		}
		if s.giveBack != nil { // else an earlier statement has found no other connection
			s.giveBack(true)
			s.giveBack = nil
		}
		if again := s.connect(ctx); again != nil {
			return nil, errors.Join(err, again)
		}
	}
}

// ended reports whether the work has ended its transaction.
func (s *session) ended() bool { return s.begun && s.conn.PgConn().TxStatus() == 'I' }

// kept reports whether the work has ended its transaction by a commit. It asks the server for the
// mark unless it has seen the end. Behind PgBouncer another session may answer, which only shows
// something if it has the mark.
func (s *session) kept(ctx context.Context) (bool, error) {
	if s.committed || s.undone {
		return s.committed, nil
	}
	err := s.conn.QueryRow(ctx, "select case when "+marked+"$1 then true when pg_backend_pid() = $2 then false end",
		markOf(s.conn), int64(s.conn.PgConn().PID())).Scan(&s.committed)
	return s.committed, err
}

// take ends the use of the session by the work, and reports whether it is still in use.
// database/sql waits for a call in progress. late is set if the wait lasted until ctx ended.
func (s *session) take(ctx context.Context) (inUse bool) {
	if s.over.Swap(true) {
		return s.inUse
	}
	if s.takeBack != nil {
		stop := closeAtEnd(ctx, s.conn.PgConn())
		s.takeBack()
		if s.late = !stop(); s.late {
			s.hangUp()
		}
	}
	s.inUse = !s.used.TryLock()
	return s.inUse
}

// leave gives the connection back. If the connection is broken, or still in a transaction, leave
// closes it instead, and the server rolls back.
func (s *session) leave() {
	if s.giveBack == nil {
		return
	}
	conn := s.conn.PgConn()
	if s.inUse || conn.IsClosed() || conn.IsBusy() || conn.TxStatus() != 'I' {
		s.hangUp()
	}
	s.giveBack(s.cut)
	s.giveBack = nil
}

func (s *session) hangUp() {
	if s.cut = true; s.inUse { // hangUp would read what the call in progress writes
		_ = s.conn.PgConn().Conn().Close()
		return
	}
	hangUp(s.conn)
}

// rollback ends the transaction, and gives the connection back.
func (s *session) rollback(ctx context.Context) (err error) {
	s.take(ctx)
	if s.giveBack == nil {
		return nil
	}
	defer s.leave()
	if conn := s.conn.PgConn(); s.inUse || s.cut || conn.IsClosed() || conn.IsBusy() || conn.TxStatus() == 'I' {
		return nil // leave does the rest
	}
	_, err = s.conn.Exec(ctx, "rollback; set latch.work = ''") // a COMMIT by the work, before another BEGIN, has kept the mark
	return err
}

// commitResult is the answer to a receipt and its COMMIT.
type commitResult uint8

const (
	unanswered commitResult = iota // the COMMIT may have been executed, or may be executed later
	committed
	notFound // the receipt's statement has found no claim, and COMMIT was not executed
	refusedThere
)

// settleAndCommit sends the receipt's statement and COMMIT, after BEGIN if nothing was sent yet,
// in one round trip. After a statement that fails, the server does not execute the next ones.
//
// settleAndCommit reads the answers itself. The driver would send a request to cancel COMMIT when
// its context ends or its connection fails. If the COMMIT waits for a standby, such a request
// ends the wait: the COMMIT takes effect, and is on no other server.
func (s *session) settleAndCommit(ctx context.Context, settle string, args ...[]byte) (commitResult, error) {
	prepared := ""
	if s.prepares() {
		is, err := s.conn.Prepare(ctx, settle, settle) // at the server only once
		switch {
		case err == nil:
		case refused(err):
			return refusedThere, err
		default: // not sent; the server may keep the session, which Outcome ends
			s.hangUp()
			return unanswered, fmt.Errorf("pgstore: COMMIT was not answered: %w", err)
		}
		prepared = is.Name
	}
	conn := s.conn.PgConn()
	stop := closeAtEnd(ctx, conn)
	how, err := s.send(conn, prepared, settle, args)
	if !stop() || how == unanswered || hasCode(err, "26000") { // the work has deallocated it
		s.hangUp()
	}
	return how, err
}

// prepares reports whether the connection may prepare statements.
func (s *session) prepares() bool {
	data := s.conn.PgConn().CustomData()
	may, known := data[preparesKey].(bool)
	if !known {
		cfg := s.conn.Config() // a copy of all settings
		may = cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && cfg.StatementCacheCapacity > 0
		data[preparesKey] = may
	}
	return may
}

// closeAtEnd makes reads and writes on conn fail when ctx ends. It sends nothing to the server.
// stop ends the watch, and reports whether ctx had not ended by then.
func closeAtEnd(ctx context.Context, conn *pgconn.PgConn) (stop func() bool) {
	ended := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		_ = conn.Conn().SetDeadline(time.Unix(1, 0))
		close(ended)
	})
	return func() bool {
		if cancel() {
			return true
		}
		<-ended
		return false
	}
}

func (s *session) send(conn *pgconn.PgConn, prepared, settle string, args [][]byte) (commitResult, error) {
	wire := conn.Frontend()
	execute := func(name, sql string, args ...[]byte) {
		if name == "" {
			wire.SendParse(&pgproto3.Parse{Query: sql})
		}
		wire.SendBind(&pgproto3.Bind{PreparedStatement: name, ParameterFormatCodes: []int16{1}, Parameters: args})
		wire.SendExecute(&pgproto3.Execute{})
	}
	before := 0 // number of statements that end before the statement of the receipt
	if s.tx == nil {
		before = 2
		execute("", "begin")
		execute("", s.setMark())
	}
	execute(prepared, settle, args...)
	execute("", "commit")
	wire.SendSync(&pgproto3.Sync{})
	if err := wire.Flush(); err != nil {
		return unanswered, fmt.Errorf("pgstore: COMMIT was not sent: %w", err)
	}

	how, warned := unanswered, false
	var failed error
	for done := 0; how == unanswered && failed == nil; {
		message, err := wire.Receive()
		if err != nil {
			return unanswered, fmt.Errorf("pgstore: COMMIT was not answered: %w", err)
		}
		switch m := message.(type) {
		case *pgproto3.NoticeResponse:
			warned = warned || m.SeverityUnlocalized == "WARNING" && done > before
		case *pgproto3.CommandComplete:
			switch done++; {
			case done <= before+1:
			case string(m.CommandTag) == "COMMIT" && !warned:
				how = committed
			case string(m.CommandTag) == "COMMIT":
				failed = errWarned
			default:
				how, failed = refusedThere, errAborted
			}
		case *pgproto3.ErrorResponse:
			failed = pgconn.ErrorResponseToPgError(m)
			switch {
			case !refused(failed):
				return unanswered, fmt.Errorf("pgstore: COMMIT was not answered: %w", failed)
			case done == before && raised(failed, noClaim):
				how, failed = notFound, nil
			default:
				how = refusedThere
			}
		}
	}
	// Read to the end of the exchange, where the driver notes that the transaction is over.
	for {
		message, err := conn.ReceiveMessage(context.Background()) //nolint:forbidigo // closeAtEnd ends it; the driver would watch a context that can end, and cancel the COMMIT
		if err != nil {
			break
		}
		if _, ready := message.(*pgproto3.ReadyForQuery); ready {
			break
		}
	}
	return how, failed
}

// bigint encodes n as a parameter.
func bigint(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) } //nolint:gosec // its bits

// poolSession takes a connection of a pool.
func poolSession(ctx context.Context, pool *pgxpool.Pool) (*session, error) {
	s := new(session)
	s.connect = func(ctx context.Context) error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		s.conn = conn.Conn()
		s.giveBack = func(broken bool) {
			if broken {
				conn.Hijack() // the connection leaves the pool at once
			} else {
				conn.Release()
			}
		}
		return nil
	}
	s.carried = func(ctx context.Context) context.Context {
		return context.WithValue(ctx, txKey{}, pgx.Tx(workTx{s: s, ctx: ctx}))
	}
	return s, s.connect(ctx)
}

var errInUse = errors.New("pgstore: another call of the work's transaction is in progress: it serves one at a time")
