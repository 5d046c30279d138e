package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/internal/carry"
)

// seat is a command's place in the queue and then in a batch. The caller waits
// on it; the worker that writes the batch settles it.
type seat struct {
	// The queue's, under its lock.
	prev, next *command
	queued     bool

	deadline time.Time // of the caller; zero if there is none

	parted   atomic.Bool   // caller and worker: whoever comes first decides who counts the end
	carrier  carry.Counter // of a caller that left; set before parted
	answered chan struct{}

	// Set before answered.
	answer any
	err    error
	sends  int
}

var seats = sync.Pool{New: func() any { return &seat{answered: make(chan struct{}, 1)} }}

// takeSeat makes c one that shares a round trip.
func (c *command) takeSeat(ctx context.Context) *seat {
	s := seats.Get().(*seat) //nolint:errcheck // nothing else is in there
	s.deadline, _ = ctx.Deadline()
	c.shared, c.seat = true, s
	return s
}

// standUp makes c one that shares nothing again, and which nobody has had.
func (c *command) standUp(s *seat) {
	c.shared, c.seat = false, nil
	s.free()
}

// free gives the seat back. Nobody else must know it any more.
func (s *seat) free() {
	s.prev, s.next, s.carrier, s.answer, s.err = nil, nil, nil, nil, nil
	s.parted.Store(false)
	seats.Put(s)
}

// The stages of a command that shares a round trip. Between the moment in which
// it is handed out to be written and the one in which it is written, its caller
// can give up; so what was handed out counts as written until the batch is over.
const (
	stageOpen int32 = iota
	stageHanded
	stageClosed // never handed out from here on
)

// hand reports whether the command may be written, and makes it one that may
// have been.
func (c *command) hand() bool {
	return c.stage.CompareAndSwap(stageOpen, stageHanded) || c.stage.Load() == stageHanded
}

// SetErr is what go-redis tells the outcome by. In a pipeline it does so as soon
// as a command's reply was read: those behind it, which may take long, are not
// waited for. A failure of the batch that comes later is not the command's.
func (c *command) SetErr(err error) {
	if !c.shared {
		c.Cmd.SetErr(err)
		return
	}
	if c.seat == nil {
		return
	}
	if err == redis.Nil { //nolint:errorlint // as it comes from the reader
		err = nil // an answer, which go-redis would look at for long
	}
	c.Cmd.SetErr(err)
	if c.payload.sends.Load() > 0 && isReply(err) {
		c.settle(err)
	}
}

// isReply reports whether err is what a server has said.
func isReply(err error) bool {
	if err == nil {
		return true
	}
	var reply redis.Error
	return errors.As(err, &reply)
}

// settle ends c, once: it will not be written any more, and its caller is told
// if it still waits.
func (c *command) settle(err error) {
	s := c.seat
	if s == nil {
		return
	}
	c.seat = nil
	c.stage.Store(stageClosed)
	s.answer, s.err, s.sends = c.Val(), err, c.payload.close()
	if s.parted.CompareAndSwap(false, true) {
		s.answered <- struct{}{}
	} else if s.carrier != nil {
		s.carrier.Arrive()
	}
}

// accept is for the caller that was told: it takes the outcome.
func (c *command) accept(s *seat) error {
	err := s.err
	c.answer, c.sends = s.answer, s.sends
	s.free()
	return err
}

// leave is for a caller whose time is over, and which has been taken out of the
// queue by a worker. What is certainly not written by now never will be. For the
// rest the round trip goes on without the caller: whoever counts what is on its
// way hears of it before it returns, and again at its end.
func (c *command) leave(ctx context.Context, s *seat) error {
	if c.stage.CompareAndSwap(stageOpen, stageClosed) {
		return ctx.Err()
	}
	s.carrier = carry.From(ctx)
	if s.carrier != nil {
		s.carrier.Depart()
	}
	if s.parted.CompareAndSwap(false, true) {
		c.left = true
		return ctx.Err()
	}
	if s.carrier != nil {
		s.carrier.Arrive()
	}
	<-s.answered
	return c.accept(s)
}
