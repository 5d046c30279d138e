package pgstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

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

// preparesKey is the key of prepares in the custom data of a connection.
const preparesKey = "latch_prepares"

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
