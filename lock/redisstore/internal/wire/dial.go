package wire

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// moreDials is the least time after which one dial does not keep another from beginning.
const moreDials = 100 * time.Millisecond

// dial begins to make a connection, unless another dial has begun just now. s.mu is held.
func (s *Server) dial(now time.Time) {
	if s.closed || len(s.dials) > 0 && now.Sub(s.dials[len(s.dials)-1]) < s.pace(now) || len(s.conns) >= s.most && !s.makeRoom(now) {
		return
	}
	s.dials = append(s.dials, now)
	go func() {
		nc, took, err := s.connect(s.open)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dials = slices.DeleteFunc(s.dials, now.Equal)
		if err != nil {
			go s.config.Broken()
			if usable, _, _ := s.survey(); usable == 0 {
				s.drop(func(*Command) error { return err })
			}
			return
		}
		if s.closed {
			go func() { _ = nc.Close() }()
			return
		}
		if s.window.usual == 0 {
			s.window.usual = took
		}
		if now.After(s.window.newest) {
			s.window.newest = now
		}
		s.conns = append(s.conns, &conn{net: nc, endless: nc.SetReadDeadline(time.Time{}) != nil})
		s.write(nil, time.Now())
	}()
}

// pace returns the time after which the dials under way do not keep another from beginning: an eighth of the time
// for which the oldest hangs, so that the end of a silence is noticed soon, measured by its length, and the dials of
// a fleet do not grow into a load that no server can serve.
func (s *Server) pace(now time.Time) time.Duration {
	return max(now.Sub(s.dials[0])/8, moreDials)
}

// keepsPlace is how long a connection without replies keeps its place when all others are silent, too.
const keepsPlace = time.Second

// makeRoom gives up a connection for which no caller waits any more, if all are silent: the server may
// answer over a new one. s.mu is held.
func (s *Server) makeRoom(now time.Time) bool {
	awaited := func(c *Command) bool { return c.state == sent || now.Sub(c.written) < keepsPlace }
	var silent *conn
	for _, cn := range s.conns {
		if !cn.overdue {
			return false
		}
		if silent == nil && !slices.ContainsFunc(cn.unanswered, awaited) {
			silent = cn
		}
	}
	if silent != nil {
		s.lose(silent, errSilent)
	}
	return silent != nil
}

// connect dials, and returns the time of the round trip in which the server has answered. It returns
// when ctx ends, also if code of the user does not.
func (s *Server) connect(ctx context.Context) (net.Conn, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	var took time.Duration
	made := failure.Apart(func() (nc net.Conn, err error) {
		nc, took, err = s.config.Dial(ctx)
		return nc, err
	})
	select {
	case d := <-made:
		return d.Value, took, d.Err
	case <-ctx.Done():
		go func() {
			if d := <-made; d.Err == nil {
				_ = d.Value.Close()
			}
		}()
		return nil, 0, ctx.Err()
	}
}

// relocation is the interval at which a server in use that may move is looked for.
const relocation = time.Second

// locate looks where the server is now. A former master that only its Sentinels have lost sight of
// still answers, and its connections would stay in use.
func (s *Server) locate(now time.Time) {
	if !s.config.Moves || s.large == nil || now.Sub(s.located) < relocation || len(s.conns) == 0 {
		return
	}
	s.located = now
	go func() {
		nc, _, err := s.connect(s.open)
		if err != nil {
			return
		}
		defer func() { _ = nc.Close() }()
		s.retire(func(cn *conn) bool { // an address is nil of some dialers of users
			return fmt.Sprint(cn.net.RemoteAddr()) != fmt.Sprint(nc.RemoteAddr())
		})
	}()
}

// demoted gives up all connections to a server that is no master any more. Over another one, a script would find
// the entries of before, and say that there is none.
func (s *Server) demoted() {
	s.retire(func(*conn) bool { return true })
	s.config.Broken()
}

// retire gives up some connections, and those for large commands at the same time, or a receipt would not find
// its entry.
func (s *Server) retire(some func(cn *conn) bool) {
	for _, of := range s.both {
		of.mu.Lock()
		for _, cn := range slices.Clone(of.conns) {
			if !some(cn) {
				continue
			}
			if cn.retired = true; len(cn.unanswered) == 0 {
				of.lose(cn, errRetired)
			}
		}
		of.mu.Unlock()
	}
}

// Login has the fields of the first commands of a connection. A field that is empty is not sent.
type Login struct {
	User, Password, ClientName string
	DB                         int
}

// DialerOf returns the way to a server, from the dialer and the credentials of a client. The dialer of a
// Sentinel client asks for the master each time.
func DialerOf(dial func(context.Context) (net.Conn, error), login func(context.Context) (Login, error)) Dialer {
	return func(ctx context.Context) (net.Conn, time.Duration, error) {
		nc, err := dial(ctx)
		if err != nil {
			return nil, 0, err
		}
		// After an error, or a panic of the user's code, the connection ends with ctx, which connect ends.
		stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
		as, err := login(ctx)
		var took time.Duration
		if err == nil {
			took, err = greet(nc, as)
		}
		if err == nil && stop() {
			return nc, took, nil
		}
		return nil, 0, cmp.Or(ctx.Err(), err)
	}
}

// greet authenticates, selects the database, and waits for the first answer of the server, in one
// round trip. It speaks RESP 2, which every server and proxy does.
func greet(nc net.Conn, as Login) (took time.Duration, err error) {
	var out []byte
	var needed []bool // whether an error ends the connection
	say := func(must bool, args ...any) {
		out, needed = appendCommand(out, args), append(needed, must)
	}
	switch {
	case as.Password != "" && as.User != "":
		say(true, "auth", as.User, as.Password)
	case as.Password != "":
		say(true, "auth", as.Password)
	}
	if as.DB > 0 {
		say(true, "select", int64(as.DB))
	}
	if as.ClientName != "" {
		say(false, "client", "setname", as.ClientName)
	}
	say(false, "ping")
	began := time.Now()
	if _, err := nc.Write(out); err != nil {
		return 0, err
	}
	var in replies
	var away error // of a server that turns clients away: it closes the connection after one error
	for len(needed) > 0 {
		all, err := in.next(nc)
		for _, reply := range all {
			if len(needed) == 0 {
				return 0, errUnasked
			}
			said, failed := reply.(Error)
			refused, last := failure.ReplyCode(said), len(needed) == 1
			if failed && (needed[0] || refused == "NOAUTH" || last && refused == "") { // "" of a server that turns clients away
				return 0, said
			}
			if failed && refused == "" {
				away = said
			}
			needed = needed[1:]
		}
		if err != nil {
			return 0, cmp.Or(away, err)
		}
	}
	if len(in.data) > 0 {
		return 0, errUnasked // the rest would pass for a part of the first reply
	}
	return time.Since(began), nil
}
