package wire

import (
	"context"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// Command is one Redis command on an entry, or several that are written together. It is sent at
// most once. [Command.Free] gives its memory to later ones.
type Command struct {
	EntryName string // the entry that the command works on
	Yields    bool   // commands that end a lease overtake it: it claims, or cleans up
	Alone     bool   // it has a connection of its own, which the server or a proxy may close
	Batch     bool   // the answer is a []any with the replies to all commands, errors included

	space   [224]byte // of most commands, so that each is one allocation
	out     []byte    // as the protocol writes them
	count   int       // of the commands, and of the replies
	replies []any     // so far, of a batch

	// Fields of the server, under its lock.
	state         state
	queue         *queue          // where the command waits
	before, after *Command        // in the queue
	ctx           context.Context //nolint:containedctx // of the call, which waits for the command
	caller        context.Context //nolint:containedctx // whose end is the end of the wait
	gone          <-chan struct{} // closed when the caller no longer waits
	flight        *send.Flight    // of a call that has left; nil: the end of the command is not counted
	arrived       time.Time
	deadline      time.Time     // of the caller
	written       time.Time     // when it has left the queue
	over          chan struct{} // gets a value when the caller need no longer wait; nil: the caller writes or reads
	trip          trip
	answer        any // the outcome, for the caller
	err           error
}

// state is the progress of a command. It only grows.
type state uint8

const (
	queued state = iota
	sent         // the caller waits
	left         // the caller has left
	done
)

var commands = sync.Pool{New: func() any { return new(Command) }}

// NewCommand returns a command on the entry called name, of strings, byte slices and int64s. They do not
// escape.
func NewCommand(name string, args ...any) *Command { return NewCommandOf(name, args) }

// NewCommandOf returns a command whose arguments are in several parts.
func NewCommandOf(name string, parts ...[]any) *Command {
	c := commands.Get().(*Command) //nolint:errcheck,forcetypeassert // nothing else is in it
	c.EntryName, c.out, c.count = name, appendCommand(c.space[:0], parts...), 1
	return c
}

// Then adds a command to a batch, which is written without another between them.
func (c *Command) Then(args ...any) *Command {
	c.out = appendCommand(c.out, args)
	c.count++
	return c
}

// Free ends the use of c, after its answer. A command that a connection or a client may still have is
// left to the garbage collector.
func (c *Command) Free() {
	if c.state == done {
		*c = Command{}
		commands.Put(c)
	}
}

// Parts returns the arguments of c and of the commands after it.
func (c *Command) Parts() (all [][]any) {
	for rest := c.out; len(rest) > 0; {
		args, n, _, _ := parse(rest, 0)
		all, rest = append(all, args.([]any)), rest[n:] //nolint:errcheck,forcetypeassert // of our own code
	}
	return all
}

// end ends c, for its caller or for the flight that it has left behind.
func (c *Command) end(answer any, err error, how send.Landing) {
	if c.state == left {
		go c.flight.Arrive(how) // it calls functions of others
		return
	}
	c.state, c.answer, c.err = done, answer, err
	if c.over != nil {
		c.over <- struct{}{}
	}
}

// leave separates c from its caller, which no longer waits. The flight of the call is notified of the end.
func (c *Command) leave(why error) {
	c.flight = send.Depart(c.ctx)
	c.state, c.err = left, failure.Unknown(failure.Kind(why), why)
	if c.over != nil {
		c.over <- struct{}{}
	}
}

// mustLeave returns why the caller of c is to leave: it has gone, its time is over, or it sends again. It
// is nil otherwise. stalled says that the connection is known to stall.
func (c *Command) mustLeave(now time.Time, stalled bool) error {
	if err := c.abandoned(); err != nil {
		return err
	}
	try, ok := c.ctx.(*send.Try)
	if !now.Before(c.deadline) || ok && try.GiveUp(now.Sub(c.written), stalled) {
		return send.ErrGivenUp
	}
	return nil
}

// abandoned returns the error of the caller if it no longer waits for c.
func (c *Command) abandoned() error {
	select {
	case <-c.gone:
		return c.caller.Err()
	default:
		return nil
	}
}

// queue holds commands in the order of arrival.
type queue struct {
	first, last *Command
	len         int
}

func (q *queue) add(c *Command) {
	c.before = q.last
	if q.last = c; c.before == nil {
		q.first = c
	} else {
		c.before.after = c
	}
	q.len++
}

func (q *queue) remove(c *Command) {
	if c.before == nil {
		q.first = c.after
	} else {
		c.before.after = c.after
	}
	if c.after == nil {
		q.last = c.before
	} else {
		c.after.before = c.before
	}
	c.before, c.after = nil, nil
	q.len--
}
