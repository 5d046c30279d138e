package group

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// Command is one Redis command on an entry. It is sent at most once.
type Command struct {
	redis.Cmd
	EntryName string // the entry that the command works on
	Load      Load   // the argument that is made for the command
	Yields    bool   // commands that end a lease overtake it: it claims, or cleans up

	// So that most commands are one allocation.
	args  [maxArgs]any
	space [144]byte // for a load without a receipt and with usual names

	// Fields of the group, under its lock.
	state    state
	queue    *queue          // where the command waits
	caller   context.Context //nolint:containedctx // of a call, which waits for the command
	try      *send.Try       // the context of the call, if it is one
	flight   *send.Flight    // of a call that has left; nil: the end of the command is not counted
	how      send.Landing    // for the flight
	arrived  time.Time
	deadline time.Time     // of the caller
	over     chan struct{} // gets a value when the caller need no longer wait; nil: the caller sends the command itself
	batch    *Batch
	own      Batch // the batch of a command that its caller sends
	reply    any   // the first reply, as the batch has read it
	replied  bool  // there was a reply
	lost     bool  // the command may have been written, and got no reply
	answer   any   // the outcome, for the caller
	err      error // likewise
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

// MarshalBinary returns the bytes.
func (l *Load) MarshalBinary() ([]byte, error) { return *l, nil }

// String is for client hooks that print commands.
func (l *Load) String() string { return string(*l) }

// NewCommand returns a command on the entry called name, without load and arguments.
func NewCommand(name string) *Command { return &Command{EntryName: name} }

// Room returns space for a load of usual length.
func (c *Command) Room() []byte { return c.space[:0] }

// With sets the arguments. Neither the name of the command nor the key may be the load:
// go-redis reads them as strings.
func (c *Command) With(args ...any) *Command {
	c.Cmd = *redis.NewCmd(context.Background(), append(c.args[:0], args...)...) //nolint:forbidigo // the batch has one
	return c
}

// Script makes c run a script, by its source or by its hash. A load is the first argument of
// the script.
func (c *Command) Script(verb string, which any, args ...any) *Command {
	own := append(c.args[:0], verb, which, 1, c.EntryName)
	if c.Load != nil {
		own = append(own, &c.Load)
	}
	return c.With(append(own, args...)...)
}

// Again returns a copy of c that was not sent.
func (c *Command) Again() *Command {
	d := &Command{EntryName: c.EntryName, Load: c.Load, Yields: c.Yields}
	args := slices.Clone(c.Args())
	for i := range args {
		if args[i] == any(&c.Load) {
			args[i] = &d.Load
		}
	}
	return d.With(args...)
}

// NoRetry makes go-redis return the first failure, in a pipeline as well. A retry by go-redis would
// mistake the entry that the first send has made for the entry of another holder.
func (c *Command) NoRetry() bool { return true }

// SetErr takes the outcome of each reply as it is read, or the end of the round trip if there
// was no reply. The first outcome without an error stands, whatever a hook of the client does
// afterwards.
//
// The server's nil is an answer. go-redis would examine it as a failure, which costs more
// than the rest of the command.
func (c *Command) SetErr(err error) {
	if c.replied && c.Err() == nil {
		return
	}
	if err == redis.Nil { //nolint:errorlint // as it comes from the reader
		err = nil
	}
	if c.replied = err == nil || failure.IsReply(err); c.replied {
		c.reply = c.Val()
	} else if !neverWritten(err) {
		c.lost = true
	}
	c.Cmd.SetErr(err)
}

// neverWritten reports whether err, which the client has returned for the only send of a
// command, says that the command was not written. A failure of the handshake, or of the
// user's code in the client, does not say so.
func neverWritten(err error) bool {
	class := failure.Kind(err)
	return failure.NeverDialed(err) || class == "pool" || class == "closed" || errors.Is(err, ErrTimeOver)
}

// Transmit is for the innermost hook of the client: next sends the batch of c, unless the
// batch is over.
func (c *Command) Transmit(next func() error) error { return c.batch.transmit(next) }

// Outer reports whether the group of c transmits it, around the client.
func (c *Command) Outer() bool { return c.batch.outer }

// large reports whether c has a batch of its own: other commands would wait for a receipt of
// a megabyte. A server takes as long for 16 kB as for 32 ordinary commands.
func (c *Command) large() bool {
	const most = 16 << 10
	n := len(c.Load)
	for _, arg := range c.Args() {
		switch arg := arg.(type) {
		case string:
			n += len(arg)
		case []byte:
			n += len(arg)
		}
	}
	return n > most
}

// finish ends c with its outcome, for its caller.
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
