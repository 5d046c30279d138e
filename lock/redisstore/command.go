package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// command is one Redis command on an entry. It is sent at most once.
type command struct {
	redis.Cmd
	name   string // of the entry
	load   load   // the argument that is made for the command
	yields bool   // it begins something, or cleans up: it comes after what ends a lease

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
	over     chan struct{} // has a value once the caller need no longer wait
	batch    *batch
	alone    batch // of a command that its caller sends
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

// load is an argument that is longer than most, and is not copied.
type load []byte

// MarshalBinary returns the bytes.
func (l *load) MarshalBinary() ([]byte, error) { return *l, nil }

// String is for client hooks that print commands.
func (l *load) String() string { return string(*l) }

// newCommand returns a command on the entry called name that has still to be
// given its load and its arguments.
func newCommand(name string) *command { return &command{name: name} }

// with sets the arguments. Neither the name of the command nor the key may be
// the load: go-redis wants to see them as strings.
func (c *command) with(args ...any) *command {
	c.Cmd = *redis.NewCmd(context.Background(), append(c.args[:0], args...)...) //nolint:forbidigo // the batch has one
	return c
}

// script makes c run a script, by its source or by its hash. The load is the
// script's first argument, if there is one.
func (c *command) script(verb string, which any, args ...any) *command {
	own := append(c.args[:0], verb, which, 1, c.name)
	if c.load != nil {
		own = append(own, &c.load)
	}
	return c.with(append(own, args...)...)
}

// again is a command like c.
func (c *command) again() *command {
	d := &command{name: c.name, load: c.load, yields: c.yields}
	args := slices.Clone(c.Args())
	if i := slices.Index(args, any(&c.load)); i >= 0 {
		args[i] = &d.load
	}
	return d.with(args...)
}

// NoRetry makes go-redis return the first failure, of a pipeline too. Its own
// retries would read the entry that their first send has made as another
// holder's.
func (c *command) NoRetry() bool { return true }

// SetErr is called with the outcome of each reply as it is read, and with how
// the round trip ended for those that got none. The first that is no error stands,
// whatever a hook of the client does after it.
//
// The server's nil is an answer: go-redis would examine it as a failure, which
// takes longer than all else.
func (c *command) SetErr(err error) {
	if c.replied && c.Err() == nil {
		return
	}
	if err == redis.Nil { //nolint:errorlint // as it comes from the reader
		err = nil
	}
	if c.replied = err == nil || isReply(err); c.replied {
		c.reply = c.Val()
	} else if !neverWritten(err) {
		c.lost = true
	}
	c.Cmd.SetErr(err)
}

func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// large reports whether c is to go alone: others would wait for a receipt of a
// megabyte. 16 kB take a server about as long as 32 ordinary commands.
func (c *command) large() bool {
	const most = 16 << 10
	n := len(c.load)
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
func (c *command) finish(answer any, err error) {
	c.state, c.answer, c.err = done, answer, err
	c.over <- struct{}{}
}

// part parts c from its caller, which waits no longer, and learns from flight
// what becomes of it.
func (c *command) part(why error, flight *send.Flight) {
	flight.Depart()
	c.state, c.flight, c.err = left, flight, unknown("timeout", why)
}
