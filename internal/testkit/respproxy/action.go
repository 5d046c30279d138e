package respproxy

import "time"

// End is the way in which a connection ends for the client. The client gets
// nothing after the end. Commands that it had pipelined after the command of
// the rule are still forwarded, unless that command was dropped. Close and
// Reset follow when the server has answered them. Commands that the client
// sends later are not forwarded.
type End uint8

const (
	// Close ends it in order: the client reads EOF.
	Close End = iota
	// Reset ends it with a TCP reset. A reply that was sent just before may be
	// lost, and go-redis, over RESP3, reports the reset as EOF too.
	Reset
	// Hang keeps it open and sends nothing more, until the client closes it.
	Hang
)

// Action is applied by a rule to a command. The zero Action lets the command pass, which
// is a way to count and to wait for commands.
type Action struct {
	kind  kind
	end   End
	delay time.Duration
	bytes int
	text  string

	translation *translation
}

type kind uint8

const (
	pass kind = iota
	swallow
	drop
	hold
	delayReply
	cutCommand
	cutReply
	splitReply
	ownReply
	errorAfterApply
	translate
)

// Swallow forwards the command, waits for the server's reply, drops the reply
// and ends the connection: the command is applied, and the outcome is unknown
// to the client.
func Swallow(then End) Action { return Action{kind: swallow, end: then} }

// Drop never forwards the command, nor anything after it on its connection, and
// ends the connection: the command is not applied, and the outcome is unknown
// to the client.
func Drop(then End) Action { return Action{kind: drop, end: then} }

// Hold keeps the command, and all commands after it on its connection, until
// [Rule.Deliver], even if the client closes the connection meanwhile. Other
// connections go on.
func Hold() Action { return Action{kind: hold} }

// HoldFor is [Hold] with a delivery after d. Deliver works too.
func HoldFor(d time.Duration) Action { return Action{kind: hold, delay: d} }

// DelayReply forwards the command at once and its reply after d. Replies after
// it on its connection wait.
func DelayReply(d time.Duration) Action { return Action{kind: delayReply, delay: d} }

// CutCommand forwards only the first n bytes of the command, never all of it, then closes the
// connection.
func CutCommand(n int) Action { return Action{kind: cutCommand, bytes: n} }

// SplitReply forwards the command, and its reply in pieces of n bytes.
func SplitReply(n int) Action { return Action{kind: splitReply, bytes: n} }

// Reply answers with raw, which may be anything, and does not forward the command.
func Reply(raw string) Action { return Action{kind: ownReply, text: raw} }

// CutReply forwards the command and only the first n bytes of its reply, never
// all of it, then closes the connection.
func CutReply(n int) Action { return Action{kind: cutReply, bytes: n} }

// ReplyError answers with an error and does not forward the command. text is
// the error without "-" and line end: "OOM command not allowed", "upstream
// failure".
func ReplyError(text string) Action { return Reply("-" + text + "\r\n") }

// ReplyErrorAfterApply forwards the command, drops the server's reply and
// answers with an error.
func ReplyErrorAfterApply(text string) Action { return Action{kind: errorAfterApply, text: text} }
