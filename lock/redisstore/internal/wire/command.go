package wire

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// Command is one Redis command on an entry, or several that are written together. It is sent at
// most once.
type Command struct {
	EntryName string // the entry that the command works on
	Yields    bool   // commands that end a lease overtake it: it claims, or cleans up
	Alone     bool   // it has a connection of its own, which the server or a proxy may close

	space   [224]byte // of most commands, so that each is one allocation
	out     []byte    // as the protocol writes them
	count   int       // of the commands, and of the replies
	replies []any     // so far, of more than one

	// Fields of the server, under its lock.
	state    state
	queue    *queue          // where the command waits
	caller   context.Context //nolint:containedctx // of a call, which waits for the command
	gone     <-chan struct{} // closed when the caller no longer waits
	try      *send.Try       // the context of the call, if it is one
	flight   *send.Flight    // of a call that has left; nil: the end of the command is not counted
	arrived  time.Time
	deadline time.Time     // of the caller
	written  time.Time     // when it has left the queue
	over     chan struct{} // gets a value when the caller need no longer wait
	trip     trip
	answer   any // the outcome, for the caller
	err      error
}

// state is the progress of a command. It only grows.
type state uint8

const (
	queued state = iota
	sent         // the caller waits
	left         // the caller has left
	done
)

// NewCommand returns a command on the entry called name, of strings, byte slices and int64s.
func NewCommand(name string, args ...any) *Command {
	c := &Command{EntryName: name}
	c.out = c.space[:0]
	return c.Then(args...)
}

// Then adds a command that is written after c, without another between them. The answer of c is a
// []any with the replies of all, errors included.
func (c *Command) Then(args ...any) *Command {
	c.out = appendCommand(c.out, args...)
	c.count++
	return c
}

// Parts returns the arguments of c and of the commands after it.
func (c *Command) Parts() (all [][]any) {
	for rest := c.out; len(rest) > 0; {
		args, n, _, _ := parse(rest, 0)
		all, rest = append(all, args.([]any)), rest[n:] //nolint:errcheck,forcetypeassert // of our own code
	}
	return all
}

// large reports whether c has a connection of its own: other commands would wait for a receipt of
// a megabyte, or be lost with its connection. A server takes as long for 16 kB as for 32 ordinary commands.
func (c *Command) large() bool {
	return c.Alone || len(c.out) > 16<<10 || c.count > 9
}

// take adds a reply, and reports whether it was the last.
func (c *Command) take(reply any) (all bool) {
	if c.count == 1 {
		c.answer = reply
		return true
	}
	c.replies = append(c.replies, reply)
	c.answer = c.replies
	return len(c.replies) == c.count
}

// judge sets answer and err to what the reply says, and returns how the command has ended.
func (c *Command) judge() send.Landing {
	said, failed := c.answer.(Error)
	if !failed {
		return send.Answered
	}
	c.answer, c.err = nil, failure.Failed(said, false)
	if failure.ReplyCode(said) != "" {
		return send.Nothing
	}
	return send.Answered
}

// finish ends c for its caller.
func (c *Command) finish(answer any, err error) {
	c.state, c.answer, c.err = done, answer, err
	if c.over != nil {
		c.over <- struct{}{}
	}
}

// detach separates c from its caller, which no longer waits. flight is notified of the end.
func (c *Command) detach(why error, flight *send.Flight) {
	flight.Depart()
	c.state, c.flight, c.err = left, flight, failure.Unknown(failure.Kind(why), why)
}
