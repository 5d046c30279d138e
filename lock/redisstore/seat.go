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
	dropped    bool // taken out for a caller that has given up

	// What the caller waits for.
	deadline time.Time       // zero if there is none
	keep     time.Time       // until when the command is followed
	done     <-chan struct{} // nil if it never gives up
	carrier  carry.Counter   // of what it leaves behind
	moves    bool            // it rather tries again than waits for what stalls

	parted atomic.Bool   // caller and lane: whoever comes first decides who counts the end
	told   chan struct{} // has something when the caller need not wait any more

	// Set before told.
	answer  any
	err     error
	sends   int
	evicted error // why it was not waited for the answer; not nil if it was not
	left    bool  // and the command may be on its way
}

var seats = sync.Pool{New: func() any { return &seat{told: make(chan struct{}, 1)} }}

// takeSeat makes c one that shares a round trip.
func (c *command) takeSeat(ctx context.Context) *seat {
	s := seats.Get().(*seat) //nolint:errcheck // nothing else is in there
	s.deadline, _ = ctx.Deadline()
	s.carrier = carry.From(ctx)
	if try, ok := ctx.(*carry.Try); ok {
		s.done, s.keep, s.moves = try.GivenUp(), try.Keep, true // the lane sees to the deadline
	} else {
		s.done, s.keep = ctx.Done(), s.deadline
	}
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
	told := s.told
	*s = seat{told: told}
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
//
// There a nil of the server, which is an answer, is told as none: go-redis would
// look at it as at a failure, and for long.
func (c *command) SetErr(err error) {
	if err == redis.Nil && c.piped { //nolint:errorlint // as it comes from the reader
		err = nil
	}
	if c.batch == nil {
		c.Cmd.SetErr(err)
		return
	}
	c.batch.mu.Lock()
	defer c.batch.mu.Unlock()
	if c.seat == nil {
		return
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
// if it still waits. The batch is locked.
func (c *command) settle(err error) {
	s := c.seat
	if s == nil {
		return
	}
	c.seat = nil
	c.stage.Store(stageClosed)
	s.answer, s.err, s.sends = c.Val(), err, c.payload.close()
	if s.parted.CompareAndSwap(false, true) {
		s.told <- struct{}{}
	} else if s.carrier != nil {
		s.carrier.Arrive(s.sends == 0 || s.sends == 1 && (err == nil || replyCode(err) != ""))
	}
}

// accept is for the caller that was told: it takes the outcome.
func (c *command) accept(s *seat) error {
	if s.evicted != nil {
		c.left = s.left
		return s.evicted // the seat is not free: the worker may still have it
	}
	err := s.err
	c.answer, c.sends = s.answer, s.sends
	s.free()
	return err
}

// leave is for a caller whose time is over, and which has been taken out of the
// queue by a worker.
func (c *command) leave(s *seat, why error) error {
	if parted, left := c.part(s); parted {
		c.left = left
		return why
	}
	<-s.told
	return c.accept(s)
}

// evict is for a caller that is not to wait any longer. The batch is locked, and
// the command not settled.
func (c *command) evict(why error) {
	s := c.seat
	parted, left := c.part(s)
	if !parted {
		return
	}
	s.evicted, s.left = why, left
	s.told <- struct{}{}
}

// expire is for a caller whose time is over, and which was taken out of the queue.
func (c *command) expire() {
	s := c.seat
	c.seat = nil
	if s.parted.CompareAndSwap(false, true) {
		s.evicted = context.DeadlineExceeded
		s.told <- struct{}{}
	} else if s.carrier != nil {
		s.carrier.Arrive(true) // its caller has left meanwhile
	}
}

// part parts c from its caller, if nobody has yet. What is certainly not written
// by now never will be. For the rest, left, the round trip goes on without the
// caller: whoever counts what is on its way hears of it before the call returns,
// and again at its end.
func (c *command) part(s *seat) (parted, left bool) {
	left = !c.stage.CompareAndSwap(stageOpen, stageClosed)
	if s.carrier != nil {
		s.carrier.Depart()
	}
	if s.parted.CompareAndSwap(false, true) {
		return true, left
	}
	if s.carrier != nil {
		s.carrier.Arrive(true) // its end is its caller's
	}
	return false, left
}
