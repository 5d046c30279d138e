package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
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

	unanswered []*Command // in the order of the replies
	peak       int        // the most unanswered since the last tick

	heard   time.Time // when the last reply came
	replies int       // of the server until then
	writing time.Time // since when a goroutine writes; zero: none does
	writer  *Command  // the command whose caller writes; nil: no caller does
	reading bool      // a goroutine reads
	woken   bool      // tick has set a read deadline, so that a caller stops reading
	endless bool      // its reads obey no deadline, as those through SSH: no caller reads
	idle    bool      // it has had no command for a tick, and is closed after idleTime without one
	overdue bool      // its replies are late: it gets no more commands until one comes
	retired bool      // it gets no more commands
	closed  bool
}

// read reads once, and finishes the commands that were answered. s.mu is held, and released meanwhile.
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
	if wrong := s.answered(cn, all); wrong != nil {
		err = wrong
	}
	if err != nil {
		s.lose(cn, err)
	}
}

// readAll reads until all is answered, and callers are so few that each reads for itself. It
// runs on its own goroutine.
func (s *Server) readAll(cn *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for first := true; !cn.closed && (first || len(cn.unanswered) > 0 || cn.peak > ownTrips); first = false {
		s.read(cn)
		s.write(nil, time.Now())
	}
	cn.reading = false
}

// readOwn reads until c is done, or its caller is to leave.
func (s *Server) readOwn(cn *conn, c *Command) {
	for c.state == sent {
		s.read(cn)
	}
	cn.reading = false
	s.readOthers(cn)
	if s.ends.len+s.claims.len > 0 {
		go s.writeMore()
	}
}

// readOthers starts a goroutine that reads if none does, and replies are to come.
func (s *Server) readOthers(cn *conn) {
	if !cn.reading && len(cn.unanswered) > 0 {
		cn.reading = true
		go s.readAll(cn)
	}
}

// answered ends the commands whose replies came over cn. An error ends cn. s.mu is held.
func (s *Server) answered(cn *conn, all []any) (wrong error) {
	if len(all) == 0 {
		return nil
	}
	now, n, claims := time.Now(), 0, 0
	var written time.Time
	var first trip
	if len(cn.unanswered) > 0 { // a command that is done belongs to its caller
		written, first = cn.unanswered[0].written, cn.unanswered[0].trip
	}
	for _, reply := range all {
		if n == len(cn.unanswered) {
			wrong = errUnasked
			break
		}
		c := cn.unanswered[n]
		if c.Batch {
			if c.replies = append(c.replies, reply); len(c.replies) < c.count {
				continue
			}
			reply = c.replies
		}
		n++
		if c.Yields && (c.trip.limited || s.claims.len > 0) {
			claims++
		}
		how, err := send.Answered, error(nil)
		if said, failed := reply.(Error); failed {
			reply, err = nil, failure.Failed(said, false)
			if failure.ReplyCode(said) != "" {
				how = send.Nothing
			}
			switch failure.ClassOf(err) {
			case "READONLY":
				if !cn.retired { // a dial finds the master, if there is one
					cn.retired = true
					go s.demoted()
				}
			case "LOADING", "CLUSTERDOWN":
				go s.config.Broken()
			}
		}
		c.end(reply, err, how)
	}
	cn.heard, cn.overdue = now, false
	s.gauge.Served(now, claims)
	if n > 0 {
		s.window.learn(written, &first, len(all), now)
	}
	cn.replies, cn.unanswered = s.window.replies, slices.Delete(cn.unanswered, 0, n)
	if cn.retired && len(cn.unanswered) == 0 {
		return errRetired
	}
	return wrong
}

// lose closes cn. Each unanswered command may have been applied, or may be applied later. s.mu is
// held.
func (s *Server) lose(cn *conn, why error) {
	if cn.closed {
		return
	}
	cn.closed = true
	_ = cn.net.SetDeadline(time.Unix(1, 0)) // callers that read and write for themselves come back now
	go func() { _ = cn.net.Close() }()      // over TLS it writes, and may wait
	s.conns = slices.DeleteFunc(s.conns, func(other *conn) bool { return other == cn })
	if len(cn.unanswered) > 0 {
		go s.config.Broken()
	}
	for _, c := range cn.unanswered {
		c.end(nil, failure.Unknown(failure.Kind(why), why), send.Unanswered)
	}
	cn.unanswered = nil
	for _, other := range slices.Clone(s.conns) {
		if s.depth == 1 && len(other.unanswered) == 0 { // what has ended cn has ended it, too
			s.lose(other, why)
		}
	}
}

var (
	errUnasked = errors.New("the server has sent a reply to no command")
	errRetired = errors.New("the server is no master")
	errIdle    = errors.New("the connection was not used")
	errSilent  = fmt.Errorf("no reply came over the connection: %w", context.DeadlineExceeded)
)
