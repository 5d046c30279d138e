package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
)

// failure is every error of this package. It matches lock.ErrNotApplied if the
// call certainly had no effect.
type failure struct {
	class   string
	cause   error
	cure    string
	certain error // lock.ErrNotApplied, or nil for "unknown"
}

// Error names class, cause and cure.
func (f *failure) Error() string {
	cause := strings.TrimSuffix(strings.TrimPrefix(f.cause.Error(), f.class+" "), ".")
	text := fmt.Sprintf("redisstore: %s: %s", f.class, cause)
	if f.cure != "" {
		text += ": " + f.cure
	}
	return text
}

// Class is a short and stable name of what went wrong, to log and count by:
// the code of an error reply that is known to be a refusal ("OOM", "NOPERM"),
// else "dial", "pool", "queue", "closed", "context", "handshake", "timeout",
// "connection", "reply", "answer", "late", "value" or "argument".
func (f *failure) Class() string { return f.class }

// Unwrap returns the cause, and lock.ErrNotApplied if it is one of those.
func (f *failure) Unwrap() []error {
	if f.certain == nil {
		return []error{f.cause}
	}
	return []error{f.cause, f.certain}
}

// classOf is the class of an error of this package, "" for any other.
func classOf(err error) string {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.class
	}
	return ""
}

// notApplied is a failure that certainly had no effect.
func notApplied(class string, cause error) error {
	return &failure{class: class, cause: cause, cure: cures[class], certain: lock.ErrNotApplied}
}

// unknown is a failure that may have had an effect.
func unknown(class string, cause error) error {
	return &failure{class: class, cause: cause, cure: cures[class]}
}

// notSent classifies an error of a command that was not written, so that
// whatever it was, it is certain.
func notSent(err error) error {
	class := kind(err)
	if class == "reply" || class == "timeout" || class == "connection" || class == "answer" {
		class = "handshake" // nothing but that happens on a connection before
	}
	return notApplied(class, err)
}

// failed classifies an error of a command that was written. Only replies that a
// Redis server gives in place of executing the command say that it had no
// effect. All others may come from something in between, a proxy whose upstream
// failed for one, after the command was executed.
//
// repeated says that something other than a cluster's redirection wrote it
// twice: the reply is then that of the last time only.
func failed(err error, repeated bool) error {
	if code := replyCode(err); code != "" && !repeated {
		return notApplied(code, err)
	}
	class := kind(err)
	if class == "context" {
		class = "timeout" // it was sent
	}
	return unknown(class, err)
}

// kind is the class of an error of go-redis.
func kind(err error) string {
	var reply redis.Error
	var op *net.OpError
	var netErr net.Error
	isNet := errors.As(err, &netErr)
	switch code := replyCode(err); {
	case code != "":
		return code
	case errors.As(err, &reply):
		return "reply"
	case errors.Is(err, redis.ErrClosed):
		return "closed"
	case errors.Is(err, errQueueFull):
		return "queue"
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return "pool"
	case errors.As(err, &op) && op.Op == "dial":
		return "dial"
	case isNet && netErr.Timeout() && !errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "context"
	case isNet, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection"
	default:
		return "answer"
	}
}

// replyCode is the code of an error reply that a server gives before it
// executes anything, "" for all other errors.
//
// A script can meet one at its first write, which then has not happened; after
// a first write the server lets the others pass. NOPERM is an exception: it can
// come at the second write. That an entry can be renewed, settled or removed by
// somebody who is not permitted to SET takes a change of permissions while it
// is held.
func replyCode(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return ""
	}
	text := reply.Error()
	if deniedInScript(text) {
		return "NOPERM"
	}
	code, _, _ := strings.Cut(text, " ")
	if _, listed := cures[code]; listed && code == strings.ToUpper(code) {
		return code
	}
	return ""
}

// deniedInScript: what a script fails with at a command that its user may not
// run, in Redis 7.0 and in later ones.
func deniedInScript(text string) bool {
	return strings.HasPrefix(text, "ERR The user executing the script can't") ||
		strings.HasPrefix(text, "ERR ACL failure in script")
}

// isSyntaxError: what servers before Redis 7 answer to SET with NX and GET.
func isSyntaxError(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && reply.Error() == "ERR syntax error"
}

// badAnswer is an answer that is not of the shape that the command has.
func badAnswer(answer any) error {
	return unknown("answer", fmt.Errorf("unexpected answer of type %T", answer))
}
