package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// storeError converts the error of a statement to an error of [lock.Store], and nil to nil. An
// error answer of the server proves that the statement had no effect. The end of the session
// proves nothing, and neither does pgconn.SafeToRetry: if the connection was cut while a reply was
// on its way, pgx 5.12 returns the error of a connection that was closed before the call.
func storeError(err error) error {
	if err == nil {
		return nil
	}
	if !refused(err) {
		return fmt.Errorf("pgstore: %w", classified(err))
	}
	return fmt.Errorf("%w: pgstore: %w", lock.ErrNotApplied, explain(err))
}

// classified gives err a class unless it has one: the SQLSTATE of an answer, "dial" for a
// connection that was not made, "silent" for one without an answer, and "connection" for a
// connection that ended.
func classified(err error) error {
	var answer *pgconn.PgError
	var unreachable *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err // lock.Class knows them
	case errors.As(err, &answer):
		return rowstore.Classed(err, answer.Code)
	case errors.As(err, &unreachable):
		return rowstore.Classed(err, "dial")
	case errors.As(err, &network) && network.Timeout():
		return rowstore.Classed(err, "silent")
	case network != nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return rowstore.Classed(err, "connection")
	default:
		return err
	}
}

// refused reports whether err is the server's answer to a statement. An error of the connection
// (class 08) is none, whatever its severity: Odyssey, and PgBouncer up to 1.15, send ERROR when they
// have lost the server that was to answer.
func refused(err error) bool {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) || strings.HasPrefix(answer.Code, "08") {
		return false
	}
	severity := answer.SeverityUnlocalized
	if severity == "" {
		severity = answer.Severity // errors of PgBouncer itself have only this field, in English
	}
	return severity == "ERROR"
}

// explain adds a cure to an answer of the server, and its meaning to the Locker.
func explain(err error) error { return explained(classified(err)) }

func explained(err error) error {
	var answer *pgconn.PgError
	var unreachable *pgconn.ConnectError
	switch {
	case errors.As(err, &answer): // also while a connection is made
	case errors.As(err, &unreachable):
		return fmt.Errorf("the server cannot be reached: %w", err)
	default:
		return err
	}
	switch class := answer.Code[:min(2, len(answer.Code))]; {
	case errors.Is(err, lock.ErrDenied): // already explained
		return err
	case answer.Code == "42P01":
		return fmt.Errorf("%w: the table is not there: call Migrate, or run Schema: %w", lock.ErrDenied, err)
	case answer.Code == "42703":
		return fmt.Errorf("%w: the table is not as it should be: Check says more: %w", lock.ErrDenied, err)
	case answer.Code == "42501":
		return fmt.Errorf("%w: the role lacks a privilege, which the package's documentation names: %w", lock.ErrDenied, err)
	case answer.Code == "25006":
		return fmt.Errorf("%w: the server cannot be written to: connect to the primary, and if it is one, set default_transaction_read_only to off: %w", lock.ErrDenied, err)
	case answer.Code == "53100", answer.Code == "53200", class == "54":
		return fmt.Errorf("%w: the server has no room: %w", lock.ErrFull, err)
	default:
		return err
	}
}

// passes reports whether a refused statement may succeed later: it conflicted with another
// transaction, took too long, met a server that was full or shutting down, or its prepared form
// was for another table or deallocated.
func passes(err error) bool {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return true
	}
	switch answer.Code[:min(2, len(answer.Code))] {
	case "08", "40", "53", "57", "58":
		return true
	}
	return hasCode(err, "55P03", "26000", "0A000")
}

func hasCode(err error, codes ...string) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.Contains(" "+strings.Join(codes, " ")+" ", " "+answer.Code+" ")
}
