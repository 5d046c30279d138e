package wire

import (
	"context"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// idleTime is how long a connection is kept without a command. A store that is never closed holds
// no connection and no goroutine afterwards.
const idleTime = time.Minute

// rest is how long a connection has no command, while others have, until its end is awaited.
const rest = time.Second

// tick ends the wait of callers whose time is over, and of callers that send again instead. It
// looks for connections that are silent.
func (s *Server) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	busy := len(s.dials) > 0
	for _, cn := range slices.Clone(s.conns) {
		s.watch(cn, now)
		busy = busy || len(cn.unanswered) > 0 || !cn.writing.IsZero()
	}
	if waiting := s.ends.len + s.claims.len; now.Sub(s.looked) >= time.Duration(waiting)*perQueued {
		s.looked = now
		s.drop(func(c *Command) error {
			if !now.Before(c.deadline) {
				return context.DeadlineExceeded
			}
			return c.abandoned()
		})
	}
	if s.ends.len+s.claims.len > 0 {
		busy = true
		go s.writeMore()
	}
	s.locate(now)
	for _, cn := range s.conns {
		if !busy || len(cn.unanswered) == 0 && cn.writing.IsZero() && now.Sub(cn.heard) > rest {
			s.await(cn, now)
		}
	}
	if s.ticking = busy; busy {
		time.AfterFunc(tick, s.tick)
	}
}

// await notices when the server closes cn, which has had no command lately, and closes cn if it gets none.
func (s *Server) await(cn *conn, now time.Time) {
	if cn.idle {
		return
	}
	cn.idle = true
	longest := idleTime
	if s.config.Moves { // while nothing is in use, nothing looks for another server
		longest = relocation
	}
	_ = cn.net.SetReadDeadline(now.Add(longest))
	if !cn.reading {
		cn.reading = true
		go s.readAll(cn)
	}
}

// drop ends the commands in the queues for which there is a reason. None was written.
func (s *Server) drop(reason func(c *Command) error) {
	for _, q := range []*queue{&s.ends, &s.claims} {
		var next *Command
		for c := q.first; c != nil; c = next {
			next = c.after
			if why := reason(c); why != nil {
				q.remove(c)
				c.end(nil, failure.NotSent(why), send.Nothing)
			}
		}
	}
	s.gauge.Waiting(time.Now(), s.claims.len > 0)
}

// watch looks at the commands on cn.
func (s *Server) watch(cn *conn, now time.Time) {
	cn.peak = len(cn.unanswered)
	if cn.peak == 0 {
		if !cn.writing.IsZero() && now.Sub(cn.writing) > silence {
			s.lose(cn, errSilent) // the server has answered what it does not read
		}
		return
	}
	oldest := cn.unanswered[0].written
	since := oldest
	if cn.heard.After(since) {
		since = cn.heard // a server that is slow still answers
	}
	late := s.window.overdue(since, now) || s.depth > 1 && s.window.passed(cn.unanswered[0], cn.replies) || !cn.writing.IsZero() && s.window.overdue(cn.writing, now)
	othersAnswered := s.window.newest.After(oldest)
	if late && !cn.overdue {
		if cn.overdue = true; s.depth > 1 && !s.closed && !othersAnswered {
			s.probe(now)
		}
	}
	stalled := cn.overdue && s.depth > 1 && othersAnswered
	abandoned := true
	for _, c := range cn.unanswered {
		if c.state == sent {
			if why := c.mustLeave(now, stalled); why != nil {
				c.leave(why)
				if c.over == nil { // its caller may read
					cn.woken = true
					_ = cn.net.SetReadDeadline(time.Unix(1, 0))
				}
			}
		}
		// A late reply makes an unknown outcome known. Without it, the command could land after its clean-up.
		abandoned = abandoned && now.Sub(c.deadline) >= s.config.Reply
	}
	blocked := cn.writer != nil && !now.Before(cn.writer.deadline) && now.Sub(cn.writing) > silence
	if abandoned || blocked { // a caller that writes comes back when the connection ends
		s.lose(cn, errSilent)
	}
}

// probe finds out over another connection whether the server answers, since all callers may wait
// for replies over one that does not.
func (s *Server) probe(now time.Time) {
	ping := NewCommand("", "ping")
	ping.ctx, ping.queue, ping.arrived, ping.deadline = context.Background(), &s.ends, now, now.Add(s.config.Timeout) //nolint:forbidigo // of no caller
	s.ends.add(ping)
}
