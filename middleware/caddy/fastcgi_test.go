package latchcaddy_test

import (
	"net"
	"net/http"
	"net/http/fcgi"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFastCGI: an answer with a length is kept. One without may be cut off, and so is not kept;
// and no answer is no empty one, which it is to the transport fastcgi alone.
func TestFastCGI(t *testing.T) {
	for do, tt := range map[string]struct {
		first int
		again string // in the answer to the repeat
	}{
		"with a length": {201, "order 1"},
		"without":       {201, "#result-not-replayable"},
		"dies":          {502, "#outcome-unknown"},
		"no connection": {502, "order 1"},
	} {
		t.Run(do, func(t *testing.T) {
			s := newPHP(t)
			config := `{
	latch {
		store memory
	}
}
http://127.0.0.1:%PORT {
	root /srv
	latch {
		idempotent {
			scope {header.X-User}
			key idempotency-key
		}
	}
	reverse_proxy ` + s.addr + ` {
		transport latch fastcgi {
			split .php
		}
	}
}`
			if do == "no connection" {
				s.stop()
			}
			g := start(t, config)
			require.Equal(t, tt.first, g.order("k", do).status)
			if do == "no connection" {
				s.start()
			}
			require.Contains(t, g.order("k", "with a length").body, tt.again)
			require.Equal(t, int32(1), s.orders.Load())
		})
	}
}

// php is a FastCGI server, as PHP-FPM is one.
type php struct {
	t        *testing.T
	addr     string
	listener net.Listener
	ended    chan struct{}
	orders   atomic.Int32
}

func newPHP(t *testing.T) *php {
	t.Helper()
	s := &php{t: t, addr: "127.0.0.1:0"}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *php) start() {
	s.t.Helper()
	listener, err := net.Listen("tcp", s.addr)
	require.NoError(s.t, err)
	s.listener, s.addr, s.ended = listener, listener.Addr().String(), make(chan struct{})
	go func() {
		defer close(s.ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = fcgi.Serve(&oneConn{conn, make(chan struct{})}, s.handler(conn))
		}
	}()
}

func (s *php) stop() {
	_ = s.listener.Close()
	<-s.ended
}

func (s *php) handler(conn net.Conn) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := "order " + strconv.Itoa(int(s.orders.Add(1)))
		switch r.Header.Get("X-Do") {
		case "dies":
			_ = conn.Close()
			return
		case "with a length":
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(body))
	})
}

// oneConn is a listener with one connection, so that a handler can close it.
type oneConn struct {
	net.Conn

	taken chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case <-l.taken:
		return nil, net.ErrClosed
	default:
		close(l.taken)
		return l.Conn, nil
	}
}

func (l *oneConn) Addr() net.Addr { return l.LocalAddr() }
func (*oneConn) Close() error     { return nil }
