package wire

import (
	"context"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// Command is one Redis command on an entry, or several that are written together. It is sent at
// most once.
type Command struct {
	EntryName string // the entry that the command works on
	Load      Load   // the argument that is made for the command
	Yields    bool   // commands that end a lease overtake it: it claims, or cleans up
	Alone     bool   // it has a connection of its own, which the server or a proxy may close

	// So that most commands are one allocation.
	room  [maxArgs]any
	space [144]byte // for a load without a receipt and with usual names

	args    []any
	further [][]any // commands that are written after it; the answer has the replies of all
	answers []any   // of a command with further ones

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

// maxArgs is the number of arguments of the longest command, with its name.
const maxArgs = 9

// Load is an argument that is longer than most, and is not copied.
type Load []byte

// NewCommand returns a command on the entry called name, without load and arguments.
func NewCommand(name string) *Command { return &Command{EntryName: name} }

// Room returns space for a load of usual length.
func (c *Command) Room() []byte { return c.space[:0] }

// With sets the arguments: strings, integers, byte slices, and &c.Load.
func (c *Command) With(args ...any) *Command {
	c.args = append(c.room[:0], args...)
	return c
}

// Then adds a command that is written after c, without another between them. The answer of c is a
// []any with the replies of all, errors included.
func (c *Command) Then(args ...any) *Command {
	c.further = append(c.further, args)
	return c
}

// Name returns the name of the command.
func (c *Command) Name() string {
	name, _ := c.args[0].(string)
	return name
}

// Parts returns the arguments of c and of the commands after it, with a copy of the load.
func (c *Command) Parts() [][]any {
	args := slices.Clone(c.args)
	for i, arg := range args {
		if load, ok := arg.(*Load); ok {
			args[i] = []byte(*load)
		}
	}
	return append([][]any{args}, c.further...)
}

// Script makes c run a script, by its source or by its hash. A load is the first argument of
// the script.
func (c *Command) Script(verb string, which any, args ...any) *Command {
	c.With(verb, which, 1, c.EntryName)
	if c.Load != nil {
		c.args = append(c.args, &c.Load)
	}
	c.args = append(c.args, args...)
	return c
}

// appendTo appends c and the commands after it to out.
func (c *Command) appendTo(out []byte) []byte {
	out = appendCommand(out, c.args)
	for _, args := range c.further {
		out = appendCommand(out, args)
	}
	return out
}

// large reports whether c has a connection of its own: other commands would wait for a receipt of
// a megabyte, or be lost with its connection. A server takes as long for 16 kB as for 32 ordinary commands.
func (c *Command) large() bool {
	if c.Alone {
		return true
	}
	const most, mostFurther = 16 << 10, 8
	n := len(c.Load) + sizeOf(c.args)
	for _, args := range c.further {
		n += sizeOf(args)
	}
	return n > most || len(c.further) > mostFurther
}

func sizeOf(args []any) (n int) {
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			n += len(arg)
		case []byte:
			n += len(arg)
		}
	}
	return n
}

// take adds a reply, and reports whether it was the last.
func (c *Command) take(reply any) (all bool) {
	if len(c.further) == 0 {
		c.answer = reply
		return true
	}
	c.answers = append(c.answers, reply)
	c.answer = c.answers
	return len(c.answers) == 1+len(c.further)
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
