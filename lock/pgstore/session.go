package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
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

// markKey is the key of a connection's mark in its custom data.
const markKey = "latch_mark"

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

// beginTime bounds a BEGIN on its connection.
const beginTime = 2 * time.Second

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
	ctx, cancel := context.WithTimeout(ctx, beginTime)
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
		return context.WithValue(ctx, txKey{}, pgx.Tx(workTx{s, ctx, nil}))
	}
	return s, s.connect(ctx)
}

var errInUse = errors.New("pgstore: another call of the work's transaction is in progress: it serves one at a time")
