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
	Entry  string // its name
	Load   Load   // the argument that is made for the command
	Yields bool   // it begins something, or cleans up: it comes after what ends a lease

	// So that most commands are one allocation.
	args  [maxArgs]any
	space [144]byte // for the load: an entry without a receipt, with usual names

	// The group's, under its lock.
	state    state
	queue    *queue          // of the group, that it has to wait in
	caller   context.Context //nolint:containedctx // of a call, which waits for the command
	try      *send.Try       // the context of the call, if it is one
	flight   *send.Flight    // of a call that has left; nil: its end is not counted
	how      send.Outcome    // what flight learns
	arrived  time.Time
	deadline time.Time     // of the caller
	over     chan struct{} // has a value once the caller need no longer wait; nil: it sends c itself
	batch    *Batch
	alone    Batch // of a command that its caller sends
	reply    any   // the first, read by the batch
	replied  bool  // there was one
	lost     bool  // it may have been written, and got none
	answer   any   // the outcome, for the caller
	err      error // the same
}

// state is where a command is. It only grows.
type state uint8

const (
	queued state = iota
	sent         // and the caller waits
	left         // and the caller does not
	done
)

// maxArgs is how many arguments the longest command has, its own name included.
const maxArgs = 9

// Load is an argument that is longer than most, and is not copied.
type Load []byte

// MarshalBinary returns the bytes.
func (l *Load) MarshalBinary() ([]byte, error) { return *l, nil }

// String is for client hooks that print commands.
func (l *Load) String() string { return string(*l) }

// NewCommand returns a command on the entry called name that has still to be
// given its load and its arguments.
func NewCommand(name string) *Command { return &Command{Entry: name} }

// Room is where a load is made that is not longer than usual.
func (c *Command) Room() []byte { return c.space[:0] }

// With sets the arguments. Neither the name of the command nor the key may be
// the load: go-redis wants to see them as strings.
func (c *Command) With(args ...any) *Command {
	c.Cmd = *redis.NewCmd(context.Background(), append(c.args[:0], args...)...) //nolint:forbidigo // the batch has one
	return c
}

// Script makes c run a script, by its source or by its hash. The load is the
// script's first argument, if there is one.
func (c *Command) Script(verb string, which any, args ...any) *Command {
	own := append(c.args[:0], verb, which, 1, c.Entry)
	if c.Load != nil {
		own = append(own, &c.Load)
	}
	return c.With(append(own, args...)...)
}

// Again is a command like c.
func (c *Command) Again() *Command {
	d := &Command{Entry: c.Entry, Load: c.Load, Yields: c.Yields}
	args := slices.Clone(c.Args())
	for i := range args {
		if args[i] == any(&c.Load) {
			args[i] = &d.Load
		}
	}
	return d.With(args...)
}

// NoRetry makes go-redis return the first failure, of a pipeline too. Its own
// retries would read the entry that their first send has made as another
// holder's.
func (c *Command) NoRetry() bool { return true }

// SetErr is called with the outcome of each reply as it is read, and with how
// the round trip ended for those that got none. The first that is no error stands,
// whatever a hook of the client does after it.
//
// The server's nil is an answer: go-redis would examine it as a failure, which
// takes longer than all else.
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

// neverWritten reports whether err, which the client itself has returned for the
// only send of a command, comes from before that was written. A failure of the
// handshake, or of the user's code in the client, looks the same as a later one.
func neverWritten(err error) bool {
	class := failure.Kind(err)
	return failure.NeverDialed(err) || class == "pool" || class == "closed" || errors.Is(err, ErrTimeOver)
}

// Transmit is for the innermost hook of the client: next sends the batch that c is
// in, unless it is over.
func (c *Command) Transmit(next func() error) error { return c.batch.transmit(next) }

// Outer reports whether the group of c transmits it, around the client.
func (c *Command) Outer() bool { return c.batch.outer }

// large reports whether c is to go alone: others would wait for a receipt of a
// megabyte. 16 kB take a server about as long as 32 ordinary commands.
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

// part parts c from its caller, which waits no longer, and learns from flight
// what becomes of it.
func (c *Command) part(why error, flight *send.Flight) {
	flight.Depart()
	c.state, c.flight, c.err = left, flight, failure.Unknown(failure.Kind(why), why)
}
