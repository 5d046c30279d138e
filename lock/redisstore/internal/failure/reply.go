package failure

import (
	"errors"
	"regexp"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
)

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
