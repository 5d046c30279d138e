// Package failure has the errors of package redisstore. An error says whether the failed call had
// an effect, and which remedy an operator has.
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

// Error is the type of every error of this package. It matches lock.ErrNotApplied if the
// call certainly had no effect, and lock.ErrDenied or lock.ErrFull if the same
// call would be refused again.
type Error struct {
	class   string
	cause   error
	cure    string
	certain bool  // the call had no effect
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

// Class returns a short and stable name of the failure, for logs and metrics: the code of an error
// reply that is known to be a refusal ("OOM", "NOPERM"), or "command" (unknown to the server),
// "dial", "silent", "pool", "queue", "overload", "closed", "cancelled", "handshake", "connection",
// "reply", "answer", "size", "late", "value" or "argument".
func (f *Error) Class() string { return f.class }

// Cause returns the error of the server or the client.
func (f *Error) Cause() error { return f.cause }

// Unwrap returns the cause, and the errors of package lock that f matches.
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

// UnlessFull returns err for a call that must not give up its receipt: a
// server without memory denies the call, and the store does not count as full. The
// script that leaves a receipt needs no memory that the server could refuse. A server or a proxy
// that refuses it nevertheless may let it pass a moment later.
func UnlessFull(err error) error {
	f, ok := errors.AsType[*Error](err)
	if !ok || !errors.Is(f.denial, lock.ErrFull) {
		return err
	}
	denied := *f
	denied.denial = lock.ErrDenied
	return &denied
}

// ClassOf returns the class of an error of this package, "" for any other.
func ClassOf(err error) string {
	if f, ok := errors.AsType[*Error](err); ok {
		return f.class
	}
	return ""
}

// New returns a finding with a cure.
func New(class string, cause error, cure string) *Error {
	return &Error{class: class, cause: cause, cure: cure}
}

// Refused returns the error of a command that was not sent, and would be refused again.
func Refused(class string, cause error) error {
	return &Error{class: class, cause: cause, cure: Cure(class), certain: true, denial: lock.ErrDenied}
}

// NotApplied returns the error of a call that certainly had no effect.
func NotApplied(class string, cause error) error {
	return &Error{class: class, cause: cause, cure: Cure(class), certain: true, denial: classes[class].denial}
}

// Unknown returns the error of a call that may have had an effect.
func Unknown(class string, cause error) error {
	return &Error{class: class, cause: cause, cure: Cure(class)}
}

// NotSent classifies an error of a command that was not written, and so certainly had no
// effect.
func NotSent(err error) error {
	class := Kind(err)
	if class == "reply" || class == "connection" || class == "answer" {
		class = "handshake" // only the handshake uses a connection before its first command
	}
	return NotApplied(class, err)
}

// Failed classifies an error of a command that was written. Only a reply that a
// Redis server gives instead of executing the command proves that it had no
// effect. Any other reply may come from a proxy whose upstream failed after the
// command was executed.
//
// repeated reports that the command was written twice, other than for a cluster's
// redirection: the reply is then about the last time only.
func Failed(err error, repeated bool) error {
	if code := ReplyCode(err); code != "" && !repeated {
		return NotApplied(code, err)
	}
	return Unknown(Kind(err), err)
}

// Kind returns the class of an error of go-redis.
func Kind(err error) string {
	var netErr net.Error
	isNet := errors.As(err, &netErr)
	switch code := ReplyCode(err); {
	case code != "":
		return code
	case IsReply(err):
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

// BadAnswer returns the error for an answer whose form does not fit the command.
func BadAnswer(answer any) error {
	return Unknown("answer", fmt.Errorf("unexpected answer of type %T", answer))
}
