package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
)

// failure is every error of this package. It matches lock.ErrNotApplied if the
// call certainly had no effect, and lock.ErrDenied or lock.ErrFull if the same
// call would be refused again.
type failure struct {
	class   string
	cause   error
	cure    string
	certain bool  // that it had no effect
	denial  error // lock.ErrDenied or lock.ErrFull; nil if the next send may pass
}

// Error names class, cause and cure.
func (f *failure) Error() string {
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
// else "command" (unknown to the server), "dial", "pool", "queue", "overload", "closed",
// "context", "handshake", "timeout", "connection", "reply", "answer", "late",
// "value" or "argument".
func (f *failure) Class() string { return f.class }

// Unwrap returns the cause, and what is certain.
func (f *failure) Unwrap() []error {
	all := []error{f.cause}
	if f.certain {
		all = append(all, lock.ErrNotApplied)
	}
	if f.denial != nil {
		all = append(all, f.denial)
	}
	return all
}

// unlessFull is err for a call whose receipt is not to be given up: it says that a
// server without memory denies the call, and not that the store is full. The
// script that leaves a receipt needs no memory that the server could refuse; what
// refuses it all the same, or stands in between, may let it pass in a moment.
func unlessFull(err error) error {
	f, ok := errors.AsType[*failure](err)
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

// classOf is the class of an error of this package, "" for any other.
func classOf(err error) string {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.class
	}
	return ""
}

// notApplied is a failure that certainly had no effect.
func notApplied(class string, cause error) error {
	return &failure{class: class, cause: cause, cure: cures[class], certain: true, denial: denials[class]}
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
// come at the second write. Only if the permissions change while an entry is
// held can a user without the permission to SET renew, settle or remove it.
func replyCode(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return ""
	}
	return codeOf(reply.Error())
}

// codeOf is replyCode of a reply's text, or of the error that a command returns
// to a script.
func codeOf(text string) string {
	said, scripted := inScript(text)
	if !scripted {
		said = text
	}
	code, _, _ := strings.Cut(said, " ")
	_, listed := cures[code]
	said = strings.TrimPrefix(said, "ERR ")
	switch {
	case listed && code == strings.ToUpper(code):
		return code
	case strings.HasPrefix(said, "The user executing the script can't"), strings.HasPrefix(said, "ACL failure in script"):
		return "NOPERM" // until Redis 7.0, and in later ones
	case !scripted && strings.HasPrefix(said, "unknown command "):
		return "command"
	default:
		return ""
	}
}

// wrapped is how servers before Redis 7 answer when a command fails in a script.
// A script that catches the error sees it without the first part.
//
//	ERR Error running script (call to f_<SHA-1>): @user_script:9: @user_script: 9: -OOM command not allowed ...
//	ERR Error running script (call to f_<SHA-1>): @user_script:9: WRONGTYPE Operation against ...
var wrapped = regexp.MustCompile(`^(?:ERR Error running script \(call to f_[0-9a-f]{40}\): )?(?:@user_script: ?[0-9]+: )+-?`)

// inScript is what a command in a script has failed with, if a server before
// Redis 7 says so.
func inScript(text string) (said string, ok bool) {
	said = strings.TrimSpace(wrapped.ReplaceAllLiteralString(text, ""))
	return said, len(said) < len(strings.TrimSpace(text))
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
