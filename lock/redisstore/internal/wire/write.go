package wire

import (
	"context"
	"runtime"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

const (
	// ownTrips is the number of commands in flight whose callers write and read for themselves, each
	// over its own connection. It spares them the wait for another goroutine.
	ownTrips = 2

	// crowd is how many were unanswered lately when a writer lets others run first, whose commands it
	// then writes with its own. At 256 callers, it serves twice as many; at 4, it would serve a fifth less.
	crowd = 8

	// Callers share one connection up to shallow commands, and then up to spread of them.
	shallow = 16
	spread  = 4
)

// write writes what is queued, as far as the window and the connections allow. If it has written
// own, and the reply to own comes next over a connection that no goroutine reads, it returns the
// connection for the caller to read. When own is done, or its caller is to leave, another goroutine
// goes on. s.mu is held, and released meanwhile.
func (s *Server) write(own *Command, now time.Time) (toRead *conn) {
	for cn := s.choose(now); cn != nil; cn = s.choose(now) {
		if own != nil && own.state >= left {
			go s.writeMore()
			break
		}
		cn.writing, cn.writer = now, own
		if cn.idle {
			cn.idle = false
			_ = cn.net.SetReadDeadline(time.Time{})
		}
		if cn.peak >= crowd {
			s.mu.Unlock()
			runtime.Gosched()
			s.mu.Lock()
			now = time.Now()
		}
		if s.fill(cn, now); len(cn.out) > 0 {
			s.mu.Unlock()
			_, err := cn.net.Write(cn.out)
			s.mu.Lock()
			if err != nil {
				s.lose(cn, err)
			}
		}
		cn.writing, cn.writer = time.Time{}, nil
		if cn.out = cn.out[:0]; cap(cn.out) > maxKept {
			cn.out = nil
		}
		if own != nil && len(cn.unanswered) == 1 && cn.unanswered[0] == own && !cn.reading && !cn.endless {
			cn.reading, toRead = true, cn
		}
		s.readOthers(cn)
		now = time.Now()
	}
	s.gauge.Waiting(now, s.claims.len > 0)
	return toRead
}

func (s *Server) writeMore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(nil, time.Now())
}

// choose returns the connection for the next command: a free one for one of the first callers, and
// otherwise the first that is not full. It is nil if no command waits, if the window is full, if
// another goroutine writes to the connection and will take the command, or if a dial has to end
// first, which choose begins. s.mu is held.
func (s *Server) choose(now time.Time) *conn {
	if s.ends.len+s.claims.len == 0 {
		return nil
	}
	var free, first *conn
	usable, inFlight, share := s.survey()
	for _, cn := range s.conns {
		if cn.overdue || cn.retired {
			continue
		}
		if free == nil && len(cn.unanswered) == 0 && cn.writing.IsZero() {
			free = cn
		}
		if first == nil && len(cn.unanswered) < share {
			first = cn
		}
	}
	switch {
	case inFlight >= s.window.size:
		s.full = now
		return nil
	case free != nil && inFlight < ownTrips:
		return free
	}
	if first == nil || usable < ownTrips || share > shallow && usable < spread {
		s.dial(now)
	}
	if first == nil || !first.writing.IsZero() {
		return nil
	}
	return first
}

// survey counts the connections that get commands, and the commands on them that wait for replies. Those
// on an overdue connection do not count: they only occupy it. share is the number of commands that one
// connection may have in flight: a connection that stalls holds up a quarter of the callers, unless they
// are few, or the others stall, too.
func (s *Server) survey() (usable, inFlight, share int) {
	for _, cn := range s.conns {
		if !cn.overdue && !cn.retired {
			usable++
			inFlight += len(cn.unanswered)
		}
	}
	all := min(inFlight+s.ends.len+s.claims.len, s.window.size)
	return usable, inFlight, min(max(all/min(max(usable, 1), spread), shallow), s.depth)
}

// fill moves commands from the queues to the unanswered of cn, and their bytes into its buffer. A
// command that is too late for an answer is not written.
func (s *Server) fill(cn *conn, now time.Time) {
	before := len(cn.unanswered)
	_, inFlight, share := s.survey()
	for !cn.closed && !cn.overdue && !cn.retired {
		c := s.ends.first
		if c == nil {
			c = s.claims.first
		}
		if c == nil {
			break
		}
		if inFlight >= s.window.size {
			s.full = now
			for _, c := range cn.unanswered[before:] {
				c.trip.filled = true
			}
			break
		}
		if len(cn.unanswered) >= share {
			break
		}
		c.queue.remove(c)
		switch {
		case !now.Before(c.deadline):
			c.end(nil, failure.NotSent(context.DeadlineExceeded), send.Nothing)
		case c.abandoned() != nil:
			c.end(nil, failure.NotSent(c.caller.Err()), send.Nothing)
		case c.Yields && s.late(c, now):
			c.end(nil, s.refused(c, "overload", errOverload, now), send.Nothing)
		default:
			inFlight++
			c.state, c.written = sent, now
			c.trip = trip{size: s.window.size, inFlight: inFlight, replies: s.window.replies, limited: !c.arrived.After(s.full)}
			cn.unanswered = append(cn.unanswered, c)
			if len(c.out) > maxKept {
				cn.out = c.out // it is alone on cn
			} else {
				cn.out = append(cn.out, c.out...)
			}
			if s.window.silentSince.IsZero() {
				s.window.silentSince = now
			}
		}
	}
	cn.peak = max(cn.peak, len(cn.unanswered))
}
