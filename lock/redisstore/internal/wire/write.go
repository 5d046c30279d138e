package wire

import (
	"context"
	"runtime"
	"time"

	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

const (
	// ownTrips is the number of commands in flight whose callers write and read for themselves, each
	// over its own connection. It spares them the wait for another goroutine.
	ownTrips = 2

	// crowd is the length of a line, lately, from which a writer lets others run first, whose commands it
	// then writes with its own. At 256 callers, it serves twice as many; at 4, it would serve a fifth less.
	crowd = 8

	// Callers share one connection up to a line of shortLine, and then up to spread of them.
	shortLine = 16
	spread    = 4
)

// write writes what is queued, as far as the window and the connections allow. If it has written
// own, and the reply to own comes next over a connection that no goroutine reads, it returns the
// connection for the caller to read. When own is done, or its caller is to leave, another goroutine
// goes on. s.mu is held, and released meanwhile.
func (s *Server) write(own *Command) (toRead *conn) {
	for {
		cn := s.choose(time.Now())
		if cn == nil {
			break
		}
		if own != nil && own.state >= left {
			go s.writeMore()
			break
		}
		if own != nil {
			cn.writer = own.deadline
		}
		s.writeOnce(cn)
		cn.writer = time.Time{}
		if own != nil && cn.oldest() == own && cn.pending() == 1 && !cn.reading && !cn.closed {
			cn.reading, cn.own, toRead = true, own, cn
		}
		s.readOthers(cn)
	}
	s.gauge.Waiting(time.Now(), s.claims.len > 0)
	return toRead
}

func (s *Server) writeMore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(nil)
}

// writeOnce takes commands from the queues, and writes them to cn.
func (s *Server) writeOnce(cn *conn) {
	cn.use(time.Now())
	if cn.peak >= crowd {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	s.fill(cn)
	if len(cn.out) > 0 {
		s.mu.Unlock()
		_, err := cn.net.Write(cn.out)
		s.mu.Lock()
		if err != nil {
			s.lose(cn, err)
		}
	}
	if cn.writing, cn.out = (time.Time{}), cn.out[:0]; cap(cn.out) > 4*bufferSize {
		cn.out = nil
	}
}

// fill moves commands from the queues into the line of cn, and their bytes into its buffer. A
// command that is too late for an answer is not written.
func (s *Server) fill(cn *conn) {
	now := time.Now()
	inFlight, before, share := s.inFlight(), len(cn.line), s.share()
	for !cn.closed && !cn.overdue && !cn.retired {
		c := s.ends.first()
		if c == nil {
			c = s.claims.first()
		}
		if c == nil {
			return
		}
		if inFlight >= s.window.size {
			s.full = now
			for _, c := range cn.line[min(before, len(cn.line)):] {
				c.trip.filled = true
			}
			return
		}
		if cn.pending() >= share {
			return
		}
		c.queue.len--
		switch {
		case !now.Before(c.deadline):
			c.finish(nil, failure.NotSent(context.DeadlineExceeded))
		case c.Yields && s.late(c, now):
			c.finish(nil, s.refused(c, "overload", errOverload, now))
		default:
			inFlight++
			c.state, c.written = sent, now
			c.trip = trip{size: s.window.size, inFlight: inFlight, limited: !c.arrived.After(s.full)}
			cn.add(c)
			cn.out = append(cn.out, c.out...)
			s.window.wrote(now)
		}
	}
}

// inFlight returns the number of commands that wait for replies. Those on an overdue connection do
// not count: they only occupy it.
func (s *Server) inFlight() (n int) {
	for _, cn := range s.conns {
		if !cn.overdue {
			n += cn.pending()
		}
	}
	return n
}

// share returns the number of commands that one connection may have in flight: a connection that stalls
// holds up a quarter of the callers, unless they are few, or the others stall, too.
func (s *Server) share() int {
	usable, all := 0, s.ends.len+s.claims.len
	for _, cn := range s.conns {
		if !cn.overdue && !cn.retired {
			usable++
			all += cn.pending()
		}
	}
	all = min(all, s.window.size)
	return min(max(all/min(max(usable, 1), spread), shortLine), s.line)
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
	usable, inFlight, share := 0, 0, s.share()
	for _, cn := range s.conns {
		if cn.overdue || cn.retired {
			continue
		}
		usable++
		inFlight += cn.pending()
		if free == nil && cn.pending() == 0 && cn.writing.IsZero() {
			free = cn
		}
		if first == nil && cn.pending() < share {
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
	if first == nil || usable < ownTrips || share > shortLine && usable < spread {
		s.dial(now)
	}
	if first == nil || !first.writing.IsZero() {
		return nil
	}
	return first
}
