package pgstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/httplatch/httplatch/lock"
)

// storeError is err of a statement as [lock.Store] wants it: nil stays nil. An answer of the
// server that is an error says that the statement had no effect; the end of its session says
// nothing. Nor does pgconn.SafeToRetry: if the connection was cut while a reply was on its
// way, the error is that of a connection which was closed before (pgx 5.12).
func storeError(err error) error {
	if err == nil {
		return nil
	}
	if !refused(err) {
		return fmt.Errorf("pgstore: %w", err)
	}
	return fmt.Errorf("%w: pgstore: %w", lock.ErrNotApplied, explain(err))
}

// refused reports whether err is the server's answer to a statement.
func refused(err error) bool {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return false
	}
	severity := answer.SeverityUnlocalized
	if severity == "" {
		severity = answer.Severity // PgBouncer's own errors have that alone, in English
	}
	return severity == "ERROR"
}

// explain adds what to do about an answer of the server, and what it means to the Locker.
func explain(err error) error {
	var answer *pgconn.PgError
	var unreachable *pgconn.ConnectError
	switch {
	case errors.As(err, &answer): // also to a connection that was begun
	case errors.As(err, &unreachable):
		return fmt.Errorf("the server cannot be reached: %w", err)
	default:
		return err
	}
	switch class := answer.Code[:min(2, len(answer.Code))]; {
	case errors.Is(err, lock.ErrDenied): // is explained already
		return err
	case answer.Code == "42P01":
		return fmt.Errorf("%w: the table is not there: call Migrate, or run Schema: %w", lock.ErrDenied, err)
	case answer.Code == "42703":
		return fmt.Errorf("%w: the table is not as it should be: Check says more: %w", lock.ErrDenied, err)
	case answer.Code == "42501":
		return fmt.Errorf("%w: the role lacks a privilege, which the package's documentation names: %w", lock.ErrDenied, err)
	case answer.Code == "25006":
		return fmt.Errorf("%w: the server cannot be written to, as a standby: connect to the primary: %w", lock.ErrDenied, err)
	case answer.Code == "53100", answer.Code == "53200", class == "54":
		return fmt.Errorf("%w: the server has no room: %w", lock.ErrFull, err)
	default:
		return err
	}
}

// aborted reports whether an earlier statement of the transaction has failed.
func aborted(err error) bool { return hasCode(err, "25P02") }

// conflicted reports whether the transaction was rolled back for the sake of another one.
func conflicted(err error) bool { return hasCode(err, "40001", "40P01", "55P03") }

func hasCode(err error, codes ...string) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && strings.Contains(" "+strings.Join(codes, " ")+" ", " "+answer.Code+" ")
}
