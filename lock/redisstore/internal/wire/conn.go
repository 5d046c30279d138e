package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// conn is one connection to a server. One goroutine at a time writes to it, and one reads from it.
// All fields except net, out and in are under the lock of the server.
type conn struct {
	net net.Conn
	out []byte  // of the goroutine that writes
	in  replies // of the goroutine that reads

	line []*Command // written and not answered
	head int        // index of the first
	peak int        // the longest line since the last tick

	heard   time.Time // when the last reply came
	writing time.Time // since when a goroutine writes; zero: none does
	writer  time.Time // the deadline of the caller that writes; zero: no caller writes
	reading bool      // a goroutine reads
	own     *Command  // the command whose caller reads; nil: another goroutine reads
	woken   bool      // tick has set a read deadline, so that the caller stops reading
	idle    bool      // it has had no command for a tick, and is closed after idleTime without one
	overdue bool      // its replies are late: it gets no more commands until one comes
	retired bool      // it gets no more commands
	closed  bool
}

// pending returns the number of commands that are written and not answered.
func (cn *conn) pending() int { return len(cn.line) - cn.head }

// use begins to write to cn.
func (cn *conn) use(now time.Time) {
	cn.writing = now
	if cn.idle {
		cn.idle = false
		_ = cn.net.SetReadDeadline(time.Time{})
	}
}

func (cn *conn) add(c *Command) {
	cn.line = append(cn.line, c)
	cn.peak = max(cn.peak, cn.pending())
}

// oldest returns the command that is answered next, nil if there is none.
func (cn *conn) oldest() *Command {
	if cn.head == len(cn.line) {
		return nil
	}
	return cn.line[cn.head]
}

func (cn *conn) removeOldest() {
	cn.line[cn.head] = nil
	if cn.head++; cn.head == len(cn.line) {
		cn.line, cn.head = cn.line[:0], 0
	}
}

// wake makes the caller that reads for itself stop reading.
func (cn *conn) wake() {
	cn.woken = true
	_ = cn.net.SetReadDeadline(time.Unix(1, 0))
}

// read reads once. s.mu is held, and released meanwhile. It finishes the commands that were
// answered.
func (s *Server) read(cn *conn) {
	s.mu.Unlock()
	all, err := cn.in.next(cn.net)
	s.mu.Lock()
	if cn.woken {
		cn.woken = false
		_ = cn.net.SetReadDeadline(time.Time{})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if err = nil; cn.idle {
			err = errIdle
		}
	}
	s.answered(cn, all)
	if err != nil {
		s.lose(cn, err)
	}
}

// readAll reads until the line is empty, and callers are so few that each reads for itself. It
// runs on its own goroutine.
func (s *Server) readAll(cn *conn, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !cn.closed && (idle || cn.pending() > 0 || cn.peak > ownTrips) {
		s.read(cn)
		idle = false
		s.write(nil)
	}
	cn.reading = false
}

// readOwn reads until c is done, or its caller is to leave.
func (s *Server) readOwn(cn *conn, c *Command) {
	for c.state == sent {
		s.read(cn)
	}
	cn.own, cn.reading = nil, false
	s.readOthers(cn)
	if s.ends.len+s.claims.len > 0 {
		go s.writeMore()
	}
}

// readOthers starts a goroutine that reads if none does, and replies are to come.
func (s *Server) readOthers(cn *conn) {
	if !cn.reading && !cn.closed && cn.pending() > 0 {
		cn.reading = true
		go s.readAll(cn, false)
	}
}

// answered finishes the commands whose replies came over cn. s.mu is held.
func (s *Server) answered(cn *conn, all []any) {
	if len(all) == 0 {
		return
	}
	now := time.Now()
	claims, first := 0, cn.oldest()
	for _, reply := range all {
		c := cn.oldest()
		if c == nil {
			s.lose(cn, errUnasked)
			return
		}
		if !c.take(reply) {
			continue
		}
		cn.removeOldest()
		how := c.judge()
		if failure.ClassOf(c.err) == "READONLY" {
			cn.retired = true // a dial finds the master, if there is one
		}
		if c.Yields && (c.trip.limited || s.claims.len > 0) {
			claims++
		}
		s.end(c, how)
	}
	cn.heard, cn.overdue = now, false
	s.gauge.Served(now, claims)
	if first != cn.oldest() {
		s.window.learn(first, len(all), now)
	}
	if cn.retired && cn.pending() == 0 {
		s.lose(cn, errRetired)
	}
}

// end ends c, whose answer or err is set. s.mu is held.
func (s *Server) end(c *Command, how send.Landing) {
	if c.state == left {
		go c.flight.Arrive(how) // it calls functions of others
		return
	}
	c.finish(c.answer, c.err)
}

// lose closes cn. Each command in its line may have been applied, or may be applied later. s.mu is
// held.
func (s *Server) lose(cn *conn, why error) {
	if cn.closed {
		return
	}
	cn.closed = true
	_ = cn.net.SetDeadline(time.Unix(1, 0)) // callers that read and write for themselves come back now
	go func() { _ = cn.net.Close() }()      // over TLS it writes, and may wait
	s.remove(cn)
	lost := cn.line[cn.head:]
	cn.line, cn.head = nil, 0
	for _, c := range lost {
		c.answer, c.err = nil, failure.Unknown(failure.Kind(why), why)
		s.end(c, send.Lost)
	}
	if len(lost) > 0 {
		s.broken()
	}
}

var (
	errUnasked = errors.New("the server has sent a reply to no command")
	errRetired = errors.New("the server is no master")
	errIdle    = errors.New("the connection was not used")
	errSilent  = fmt.Errorf("no reply came over the connection: %w", context.DeadlineExceeded)
)
