// Package failure has the errors of package redisstore: what a failed call leaves
// certain, and what an operator can do.
package failure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Error is every error of this package. It matches lock.ErrNotApplied if the
// call certainly had no effect, and lock.ErrDenied or lock.ErrFull if the same
// call would be refused again.
type Error struct {
	class   string
	cause   error
	cure    string
	certain bool  // that it had no effect
	denial  error // lock.ErrDenied or lock.ErrFull; nil if the next send may pass
}

// Error names class, cause and cure.
func (f *Error) Error() string {
	cause := f.cause.Error()
	if said, ok := inScript(cause); ok {
		cause = said
	}
	cause = strings.TrimRight(strings.TrimPrefix(cause, f.class+" "), ". ")
	text := fmt.Sprintf("redisstore: %s: %s", f.class, cause)
	if f.cure != "" {
		text += ": " + f.cure
	}
	return text
}

// Class is a short and stable name of what went wrong, to log and count by:
// the code of an error reply that is known to be a refusal ("OOM", "NOPERM"),
// else "command" (unknown to the server), "dial", "silent", "pool", "queue", "overload",
// "closed", "cancelled", "handshake", "connection", "reply", "answer", "late", "value" or
// "argument".
func (f *Error) Class() string { return f.class }

// Cause is what the server or the client said.
func (f *Error) Cause() error { return f.cause }

// Cure is what an operator can do, "" if nothing is known.
func (f *Error) Cure() string { return f.cure }

// Unwrap returns the cause, and what is certain.
func (f *Error) Unwrap() []error {
	all := []error{f.cause}
	if f.certain {
		all = append(all, lock.ErrNotApplied)
	}
	if f.denial != nil {
		all = append(all, f.denial)
	}
	return all
}

// UnlessFull is err for a call whose receipt is not to be given up: it says that a
// server without memory denies the call, and not that the store is full. The
// script that leaves a receipt needs no memory that the server could refuse; what
// refuses it all the same, or stands in between, may let it pass in a moment.
func UnlessFull(err error) error {
	f, ok := errors.AsType[*Error](err)
	if !ok || !errors.Is(f.denial, lock.ErrFull) {
		return err
	}
	denied := *f
	denied.denial = lock.ErrDenied
	return &denied
}

// denials are the classes of what the same command meets again, however often it
// is sent within a budget: they last until an operator, or another program, has
// done something. All others may be over in a moment, or on another connection.
// A server loads its data, a script ends, a slot arrives, a Cluster has elected a
// master; and READONLY and MASTERDOWN come from a server that was the master
// before a failover, where another connection finds the one that is.
var denials = map[string]error{
	"OOM":        lock.ErrFull,
	"MISCONF":    lock.ErrDenied, // the server saves again after five seconds at the earliest
	"NOREPLICAS": lock.ErrDenied, // the server counts them once a second
	"NOAUTH":     lock.ErrDenied,
	"WRONGPASS":  lock.ErrDenied,
	"NOPERM":     lock.ErrDenied,
	"WRONGTYPE":  lock.ErrDenied, // what another program has put there stays
	"command":    lock.ErrDenied,
	"value":      lock.ErrDenied, // as WRONGTYPE
	"argument":   lock.ErrDenied,
	"closed":     lock.ErrDenied, // a client is not opened again
	"queue":      lock.ErrDenied, // what is sent again only makes it longer
	"overload":   lock.ErrDenied, // as "queue"
}

// ClassOf is the class of an error of this package, "" for any other.
func ClassOf(err error) string {
	if f, ok := errors.AsType[*Error](err); ok {
		return f.class
	}
	return ""
}

// New is what was found, with a cure.
func New(class string, cause error, cure string) *Error {
	return &Error{class: class, cause: cause, cure: cure}
}

// Refused is a command that was not sent, and that another send would not help.
func Refused(class string, cause error) error {
	return &Error{class: class, cause: cause, cure: cures[class], certain: true, denial: lock.ErrDenied}
}

// NotApplied is a failure that certainly had no effect.
func NotApplied(class string, cause error) error {
	return &Error{class: class, cause: cause, cure: cures[class], certain: true, denial: denials[class]}
}

// Unknown is a failure that may have had an effect.
func Unknown(class string, cause error) error {
	return &Error{class: class, cause: cause, cure: cures[class]}
}

// NotSent classifies an error of a command that was not written, so that
// whatever it was, it is certain.
func NotSent(err error) error {
	class := Kind(err)
	if class == "reply" || class == "connection" || class == "answer" {
		class = "handshake" // nothing but that happens on a connection before
	}
	return NotApplied(class, err)
}

// Failed classifies an error of a command that was written. Only replies that a
// Redis server gives in place of executing the command say that it had no
// effect. All others may come from something in between, a proxy whose upstream
// Failed for one, after the command was executed.
//
// repeated says that something other than a cluster's redirection wrote it
// twice: the reply is then that of the last time only.
func Failed(err error, repeated bool) error {
	if code := ReplyCode(err); code != "" && !repeated {
		return NotApplied(code, err)
	}
	return Unknown(Kind(err), err)
}

// Kind is the class of an error of go-redis.
func Kind(err error) string {
	var reply redis.Error
	var netErr net.Error
	isNet := errors.As(err, &netErr)
	switch code := ReplyCode(err); {
	case code != "":
		return code
	case errors.As(err, &reply):
		return "reply"
	case errors.Is(err, redis.ErrClosed):
		return "closed"
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return "pool"
	case NeverDialed(err) && !netErr.Timeout():
		return "dial"
	case isNet && netErr.Timeout(), errors.Is(err, context.DeadlineExceeded), errors.Is(err, send.ErrGivenUp):
		return "silent"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case isNet, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection"
	default:
		return "answer"
	}
}

// NeverDialed reports whether err says that no connection was made.
func NeverDialed(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// BadAnswer is an answer that is not of the shape that the command has.
func BadAnswer(answer any) error {
	return Unknown("answer", fmt.Errorf("unexpected answer of type %T", answer))
}
