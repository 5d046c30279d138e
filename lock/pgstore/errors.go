package pgstore

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// failure makes the errors of the store.
var failure = rowstore.Errors{Store: "pgstore", Answer: answer}

// cures has the meaning of an answer of the server by its SQLSTATE or class.
var cures = map[string]rowstore.Answer{
	"42P01": {Means: lock.ErrDenied, Cure: rowstore.NoTable},
	"42703": {Means: lock.ErrDenied, Cure: rowstore.NoColumn},
	"42501": {Means: lock.ErrDenied, Cure: "the role lacks a privilege, which the package's documentation names"},
	"25006": {Means: lock.ErrDenied, Cure: "the server cannot be written to: connect to the primary, and if it is one, set default_transaction_read_only to off"},
	"53100": noRoom, "53200": noRoom, "54": noRoom,
}

var noRoom = rowstore.Answer{Means: lock.ErrFull, Cure: "the server has no room"}

// answer returns the meaning of an error of a statement. An error answer of the server proves that
// the statement had no effect. The end of the session proves nothing, and neither does
// pgconn.SafeToRetry: if the connection was cut while a reply was on its way, pgx 5.12 returns the
// error of a connection that was closed before the call.
func answer(err error) (is rowstore.Answer) {
	answered, ok := errors.AsType[*pgconn.PgError](err)
	_, unreachable := errors.AsType[*pgconn.ConnectError](err)
	if ok { // also while a connection is made
		is = cures[answered.Code]
		if is.Means == nil {
			is = cures[answered.Code[:min(2, len(answered.Code))]]
		}
	} else if unreachable {
		is.Cure = "the server cannot be reached"
	}
	is.Refused = refused(err)
	network, cut := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled): // no class
	case ok:
		is.Class = answered.Code
	case unreachable:
		is.Class = "dial"
	case cut && network.Timeout():
		is.Class = "silent"
	case cut, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		is.Class = "connection"
	}
	return is
}

// refused reports whether err is the server's answer to a statement. An error of the connection
// (class 08) is none, whatever its severity: Odyssey, and PgBouncer up to 1.15, send ERROR when they
// have lost the server that was to answer.
func refused(err error) bool {
	answered, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || strings.HasPrefix(answered.Code, "08") {
		return false
	}
	severity := answered.SeverityUnlocalized
	if severity == "" {
		severity = answered.Severity // errors of PgBouncer itself have only this field, in English
	}
	return severity == "ERROR"
}

// passes reports whether a refused statement may succeed later: it conflicted with another
// transaction, took too long, met a server that was full or shutting down, or its prepared form
// was for another table or deallocated.
func passes(err error) bool {
	answered, ok := errors.AsType[*pgconn.PgError](err)
	return !ok || slices.Contains([]string{"08", "40", "53", "57", "58"}, answered.Code[:min(2, len(answered.Code))]) || hasCode(err, "55P03", "26000", "0A000")
}

func hasCode(err error, codes ...string) bool {
	answered, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, answered.Code)
}
