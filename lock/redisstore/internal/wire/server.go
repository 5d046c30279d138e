// Package wire sends commands to Redis servers over connections of its own, in both directions at
// once: commands of many callers share a connection, and are written while earlier ones wait for
// their replies. A command that has not left the queue is certainly not applied.
package wire

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

const (
	// maxQueued bounds the callers that wait for their command to be written.
	maxQueued = 1 << 16

	// tick is the interval at which a server with work looks for callers that have gone or whose time is over, and for
	// connections that are silent. It can notice them late by one interval.
	tick = 5 * time.Millisecond

	// A command of more bytes, or of more commands, is large, and has a connection of its own: others would
	// wait for a receipt of a megabyte, or be lost with its connection. A server takes as long for 16 kB as
	// for 32 ordinary commands.
	largeSize  = 16 << 10
	largeCount = 9

	// maxLarge bounds the large commands under way at once.
	maxLarge = 4

	// perQueued delays the look through a queue by this time for each command in it: a queue of
	// 10,000 is not looked through at every tick.
	perQueued = 2 * time.Microsecond
)

var (
	errQueueFull = errors.New("too many calls wait for the server")
	errOverload  = errors.New("too many calls wait: the server cannot serve this one in time")
)

// Config is the way to a server.
type Config struct {
	Dial    Dialer
	Timeout time.Duration // of Dial
	Reply   time.Duration // how long a caller without a deadline waits
	Moves   bool          // Dial may find another server, without an error of the former one
	Broken  func()        // called when another server may have taken over from this one; may be nil
}

// Dialer makes a connection, authenticated, to a server that has answered, and returns the time of
// the round trip in which it has.
type Dialer func(ctx context.Context) (net.Conn, time.Duration, error)

// Server sends commands to one server. Commands that end a lease overtake commands that claim one.
// Otherwise served callers would wait behind unserved ones.
//
// A command that the server cannot serve in its time, at its present rate, is refused on arrival as
// not applied. A command that was written is unknown until it is answered. If its caller does not
// wait for the answer, the Flight of the call is notified of the end exactly once. So the server has
// few commands at a time ([window]).
type Server struct {
	config   Config
	depth    int             // most unanswered commands on one connection
	most     int             // most connections
	large    *Server         // sends large commands, each over its own connection; nil in this Server itself
	both     []*Server       // the Server for large commands, and the one for the others
	channels sync.Pool       // of empty channels without a caller, for callers to wait on
	open     context.Context //nolint:containedctx // of dials, which outlive their callers; ended by Close
	shut     context.CancelFunc

	mu      sync.Mutex
	ends    queue // commands that do not yield
	claims  queue // commands that yield
	conns   []*conn
	dials   []time.Time // when those under way began
	located time.Time   // when the server was last looked for
	window  window
	gauge   send.Gauge
	ticking bool
	looked  time.Time // when the server last looked through the queues
	full    time.Time // when the window last kept commands in the queue
	closed  bool
}

// New returns a server. It dials when the first command comes.
func New(c Config) *Server {
	if c.Broken == nil {
		c.Broken = func() {}
	}
	s := newServer(c, maxUnanswered, maxConns)
	s.large = newServer(c, 1, maxLarge)
	s.both = []*Server{s, s.large}
	s.large.both = s.both
	return s
}

func newServer(c Config, depth, most int) *Server {
	s := &Server{config: c, depth: depth, most: most, window: window{size: maxUnanswered}}
	s.open, s.shut = context.WithCancel(context.Background()) //nolint:forbidigo // see open
	s.channels.New = func() any { return make(chan struct{}, 1) }
	return s
}

// Do sends c and waits until it is answered, or ctx ends. The answer is nil if the server has
// answered nil.
func (s *Server) Do(ctx context.Context, c *Command) (any, error) {
	if s.large != nil && (c.Alone || len(c.out) > largeSize || c.count > largeCount) {
		return s.large.Do(ctx, c)
	}
	c.ctx, c.caller, c.queue = ctx, ctx, &s.ends
	try, ok := ctx.(*send.Try)
	if ok {
		c.caller, c.gone = try.Caller, try.Gone // the server itself obeys the deadline
	} else {
		c.gone, try = ctx.Done(), send.From(ctx)
	}
	if c.Yields = c.Yields || try != nil && try.Cleaning; c.Yields {
		c.queue = &s.claims
	}
	if err := c.abandoned(); err != nil {
		return nil, failure.NotApplied("cancelled", err)
	}
	s.mu.Lock()
	now := time.Now()
	if err := s.admit(c, now); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	c.queue.add(c)
	if cn := s.write(c, now); cn != nil {
		s.readOwn(cn, c)
	}
	if c.state < left {
		c.over = s.channels.Get().(chan struct{}) //nolint:errcheck,forcetypeassert // nothing else is in it
	}
	s.mu.Unlock()
	if c.over != nil {
		<-c.over // its only value
		s.channels.Put(c.over)
	}
	return c.answer, c.err
}

// admit returns the error with which c is refused, nil if it may be queued. s.mu is held.
func (s *Server) admit(c *Command, now time.Time) error {
	var bounded bool
	if c.deadline, bounded = c.ctx.Deadline(); !bounded {
		c.deadline = now.Add(s.config.Reply)
	}
	c.arrived = now
	switch {
	case s.closed:
		return failure.NotApplied("closed", redis.ErrClosed)
	case !now.Before(c.deadline):
		return failure.NotApplied("cancelled", context.DeadlineExceeded)
	case c.queue.len == maxQueued:
		return s.refused(c, "queue", errQueueFull, now)
	case c.Yields && s.claims.len > 0 && !s.window.narrow(now) && s.late(c, now.Add(s.gauge.Wait(s.claims.len))):
		return s.refused(c, "overload", errOverload, now)
	}
	if !s.ticking {
		s.ticking = true
		time.AfterFunc(tick, s.tick)
	}
	return nil
}

// late reports whether c would be answered too late if it left the queue at then. Round trips
// differ most when there is a queue: a command that waits must have twice the usual time left, and the
// time in which the server serves a full window, half of it claims and half their ends. A command that has
// half of its time left is never late: some command has to measure the present time of an answer.
func (s *Server) late(c *Command, then time.Time) bool {
	half := c.deadline.Sub(c.arrived) / 2
	return c.deadline.Sub(then) < min(half, max(2*s.window.usual, s.gauge.Wait(maxUnanswered/2)))
}

// refused returns the error of a command that would be too late. Its class is "silent" if the
// server answers nothing at all, or did so while the command waited.
func (s *Server) refused(c *Command, class string, why error, now time.Time) error {
	if s.window.silent(now) || c.arrived.Before(s.window.silenceEnded) {
		class = "silent"
	}
	return failure.Refused(class, why)
}

// Pending returns the number of commands that are written and not answered, and in the queue.
func (s *Server) Pending() (inFlight, queued int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cn := range s.conns {
		inFlight += len(cn.unanswered)
	}
	return inFlight, s.ends.len + s.claims.len
}

// Close ends the connections. A command that is written has until the end of ctx for its reply; the
// others are not sent.
func (s *Server) Close(ctx context.Context) {
	if s.large != nil {
		defer s.large.Close(ctx)
	}
	s.mu.Lock()
	s.closed = true
	s.shut()
	s.drop(func(*Command) error { return redis.ErrClosed })
	s.mu.Unlock()
	for inFlight, _ := s.Pending(); inFlight > 0 && ctx.Err() == nil; inFlight, _ = s.Pending() {
		time.Sleep(tick)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cn := range slices.Clone(s.conns) {
		s.lose(cn, redis.ErrClosed)
	}
}
