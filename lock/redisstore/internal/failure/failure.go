// Package failure has the errors of package redisstore. An error says whether the failed call had
// an effect, and which remedy an operator has.
package failure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/internal/ratelog"
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

// class is a kind of failure. denial is lock.ErrDenied or lock.ErrFull if it outlasts a budget, however
// often the command is sent: it lasts until an operator, or another program, has acted. All other
// failures may be over in a moment, or on another connection. A server loads its data, a script ends, a
// slot arrives, a Cluster has elected a master. READONLY and MASTERDOWN come from the master before a
// failover: another connection finds its successor.
type class struct {
	denial error
	cure   string // an operator's remedy
}

// classes has the classes of failures. The upper-case ones are the codes of the replies that say
// "not executed".
var classes = map[string]class{
	"OOM":         {lock.ErrFull, "raise maxmemory, or give httplatch a Redis of its own; a claim needs memory, renewing and releasing do not"},
	"READONLY":    {nil, "this is a replica; connect to the master, through Sentinel or a Cluster client if it moves"},
	"LOADING":     {nil, "the server is starting and reads its data; this ends by itself"},
	"MISCONF":     {lock.ErrDenied, "the server refuses writes because it cannot save to disk; see its log"},
	"MASTERDOWN":  {nil, "this is a replica that has lost its master; connect to the master"},
	"NOREPLICAS":  {lock.ErrDenied, "the server has fewer replicas than its min-replicas-to-write"},
	"CLUSTERDOWN": {nil, "the Cluster does not serve this slot; see CLUSTER INFO"},
	"TRYAGAIN":    {nil, "the Cluster is moving this slot; this ends by itself"},
	"CROSSSLOT":   {nil, "this is a Redis Cluster behind one address, where no command changes several keys; use redis.NewClusterClient or a redis-cluster:// URL"},
	"MOVED":       {nil, "this is a Redis Cluster; use redis.NewClusterClient or a redis-cluster:// URL"},
	"ASK":         {nil, "this is a Redis Cluster; use redis.NewClusterClient or a redis-cluster:// URL"},
	"NOAUTH":      {lock.ErrDenied, "the server wants a password; set it in the client's options or the URL"},
	"WRONGPASS":   {lock.ErrDenied, "user or password is wrong, or the user is disabled"},
	"NOPERM": {lock.ErrDenied, "give the user what the store needs: " + MinimalACL + " (with your prefix; " +
		ClusterACL + " on a Cluster; +select for a database other than 0; " + NotifyACL + " for WithNotifications)"},
	"NOSCRIPT":  {nil, "the server forgets scripts as soon as it has run them; this ends by itself"},
	"WRONGTYPE": {lock.ErrDenied, "another program writes under this name; use WithPrefix to keep apart from it"},
	"BUSY":      {nil, "the server is busy with another client's script; see SCRIPT KILL"},

	"command":    {lock.ErrDenied, "the server has no such command: it was renamed or disabled, or a proxy in between does not pass it"},
	"dial":       {nil, "is the server up, and is the address right"},
	"pool":       {nil, "all connections are in use; raise PoolSize, or find what holds them"},
	"queue":      {lock.ErrDenied, "more calls are waiting than the server answers; it is too slow, or does not answer at all"},
	"overload":   {lock.ErrDenied, "claims arrive faster than the server serves them; send fewer, or use a faster server"},
	"closed":     {lock.ErrDenied, "the client was closed while the store was still in use"},
	"cancelled":  {nil, "the caller has left, or came when its time was over; the server is not at fault"},
	"handshake":  {nil, "the connection failed before the command was sent"},
	"silent":     {nil, "the server did not answer in time: see whether it hangs or is too slow, and whether the network drops packets"},
	"connection": {nil, "the connection ended before the answer came; whether the command was executed is not known"},
	"reply":      {nil, "not known as a refusal before execution; whether the command was executed is not known"},
	"answer":     {nil, "is something other than Redis answering"},
	"size":       {lock.ErrFull, "the server, or a proxy, takes no command of this length: raise its proto-max-bulk-len or the proxy's limit, or answer with less"},
	"value":      {lock.ErrDenied, "another program, or a newer httplatch, writes under this name; use WithPrefix to keep apart from it"},
	"late":       {nil, "the command reached the server after its caller had given up, and was refused"},
	"argument":   {lock.ErrDenied, ""},
}

// Cure returns an operator's remedy for a class, "" if none is known.
func Cure(class string) string { return classes[class].cure }

// MinimalACL has the permissions that every Redis user needs. A Cluster also needs ClusterACL,
// and WithNotifications NotifyACL. Large receipts cost the server less with
// LargeACL. The package documentation lists them too.
const (
	MinimalACL = "~latch:* +get +set +del +pttl +pexpire +time +eval +evalsha +scan +info +ping +client|setname"
	ClusterACL = "+cluster|slots +command"
	LargeACL   = "+multi +exec"
	NotifyACL  = "&latch:* +publish +subscribe +unsubscribe"
)

// Result is the result of a call.
type Result[T any] struct {
	Value T
	Err   error
}

// Apart makes a call that runs code of the user, on a goroutine of its own, and sends its result: the
// code may panic, end the goroutine, or take any time. The channel has room for the result.
func Apart[T any](call func() (T, error)) <-chan Result[T] {
	made := make(chan Result[T], 1)
	go func() {
		r := Result[T]{Err: errors.New("a hook of the client did not return")}
		defer func() {
			if p := recover(); p != nil {
				r.Err = fmt.Errorf("panic in a hook of the client: %v", p)
				if due, _ := logged.Due("panic"); due {
					slog.Default().Error("redisstore: "+r.Err.Error()+"; others are not logged for a minute", "stack", string(debug.Stack()))
				}
			}
			made <- r
		}()
		r.Value, r.Err = call()
	}()
	return made
}

var logged ratelog.Log

// ReplyCode returns the code of an error reply that a server gives before it
// executes anything, "" for all other errors.
//
// A script can get such a reply at its first write, which then has no effect. After the first
// write, the server lets the other writes pass. NOPERM is an exception: it can come at the second
// write. Only if the permissions change while an entry is held can a user without the permission to
// SET renew, settle or remove it.
func ReplyCode(err error) string {
	text, _ := replyOf(err)
	return CodeOf(text)
}

// CodeOf returns the ReplyCode of a reply's text, or of the error that a command returns
// to a script.
func CodeOf(text string) string {
	said, scripted := inScript(text)
	code, _, _ := strings.Cut(said, " ")
	_, listed := classes[code]
	said = strings.TrimPrefix(said, "ERR ")
	switch {
	case listed && code == strings.ToUpper(code):
		return code
	case strings.HasPrefix(said, "The user executing the script can't"), strings.HasPrefix(said, "ACL failure in script"):
		return "NOPERM" // in versions up to Redis 7.0, and in later ones
	case !scripted && strings.HasPrefix(said, "unknown command "):
		return "command"
	default:
		return ""
	}
}

// wrapped matches the answer of servers before Redis 7 when a command fails in a script.
// A script that catches the error sees it without the first part.
//
//	ERR Error running script (call to f_<SHA-1>): @user_script:9: @user_script: 9: -OOM command not allowed ...
//	ERR Error running script (call to f_<SHA-1>): @user_script:9: WRONGTYPE Operation against ...
var wrapped = regexp.MustCompile(`^(?:ERR Error running script \(call to f_[0-9a-f]{40}\): )?(?:@user_script: ?[0-9]+: )+-?`)

// inScript cuts the error of a command in a script from the answer of a server before
// Redis 7.
func inScript(text string) (said string, ok bool) {
	said = strings.TrimSpace(wrapped.ReplaceAllLiteralString(text, ""))
	return said, len(said) < len(strings.TrimSpace(text))
}

// IsReply reports whether err is a reply of a server, or of a proxy before it.
func IsReply(err error) bool {
	_, is := replyOf(err)
	return is
}

func replyOf(err error) (text string, is bool) {
	reply, is := errors.AsType[redis.Error](err)
	if is {
		text = reply.Error()
	}
	return text, is
}

// IsSyntaxError reports whether err is the answer of servers before Redis 7 to SET with
// NX and GET.
func IsSyntaxError(err error) bool {
	text, _ := replyOf(err)
	return text == "ERR syntax error"
}

// IsTooLong reports whether err says that a server, or a proxy, has refused a command for its length.
// It may close the connection before it has read the command.
func IsTooLong(err error) bool {
	if text, is := replyOf(err); is {
		return strings.HasPrefix(text, "ERR Protocol error")
	}
	return (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) && !errors.Is(err, lock.ErrNotApplied)
}
