package latchcaddy_test

import (
	"net"
	"net/http"
	"net/http/fcgi"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
)

// TestOneOrder repeats an order whose first answer did not arrive as it should. Through a plain
// reverse_proxy each repeat is another order.
func TestOneOrder(t *testing.T) {
	for do, tt := range map[string]struct {
		first int    // the status of the first answer
		again string // in the answer to the repeat
		once  int    // orders, of both
	}{
		"":               {201, `order 1 of "tea"`, 1},
		"in chunks":      {201, "order 1", 1},
		"redirect":       {303, "", 1},
		"lose the reply": {502, "#outcome-unknown", 1},
		"be late":        {504, "#outcome-unknown", 1},
		"cut":            {502, "#outcome-unknown", 1},
		"fail":           {500, `order 2 of "tea"`, 2},
	} {
		of := func(caddyfile string) string { return caddyfile }
		if do == "be late" {
			of = impatient
		}
		t.Run("guarded/"+do, func(t *testing.T) {
			s := newShop(t)
			g := start(t, of(guarded(s, "memory")))
			require.Equal(t, tt.first, g.order("k", do).status)
			again := send(t, g.request(t.Context(), "k", ""))
			require.Contains(t, again.body, tt.again)
			require.Equal(t, tt.once, s.placed())
			if tt.first < 400 {
				require.Equal(t, tt.first, again.status)
				require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
			}
		})
		t.Run("plain/"+do, func(t *testing.T) {
			s := newShop(t)
			g := start(t, of(plain(s)))
			_ = g.order("k", do)
			_ = g.order("k", "")
			require.Equal(t, 2, s.placed(), "this test can see a second order")
		})
	}
}

const retrying = "lb_policy round_robin\nlb_retries 4\nlb_try_interval 1ms\nlb_retry_match {\nmethod POST\n}\n}"

// A retry that is not sent is no failure of the upstream that it would have been for, which would get no more requests.
func TestALostAnswerFailsNoOtherUpstream(t *testing.T) {
	s, other := newShop(t), newShop(t)
	g := start(t, site(s, guardLines+"reverse_proxy %SHOP "+other.Listener.Addr().String()+" {\nfail_duration 1h\n"+retrying))
	require.Equal(t, 502, g.order("a", "lose the reply").status)
	require.Equal(t, 201, g.order("b", "").status)
}

// Lb_retry_match repeats a POST by itself. It is sent once, unless there was no connection.
func TestRetriesOfTheProxy(t *testing.T) {
	s := newShop(t)
	g := start(t, site(s, guardLines+"reverse_proxy 127.0.0.1:1 %SHOP {\ntransport latch\n"+retrying))
	require.Equal(t, 201, g.order("a", "").status, "the other upstream takes no connection")
	require.Equal(t, 502, g.order("b", "lose the reply").status)
	require.Contains(t, g.order("b", "").body, "#outcome-unknown")
	require.Equal(t, 2, s.placed())

	s = newShop(t)
	g = start(t, site(s, "reverse_proxy 127.0.0.1:1 %SHOP {\ntransport http\n"+retrying))
	require.Equal(t, 201, g.order("a", "").status)
	require.Equal(t, 502, g.order("b", "lose the reply").status)
	require.Greater(t, s.placed(), 2, "this test can see a second order")
}

// TestHeadersOfTheUpstream: it is given the key of the order, and says whether it has placed it;
// and a client that sends the headers of either is not heard.
func TestHeadersOfTheUpstream(t *testing.T) {
	for says, tt := range map[string]struct { // Latch-Commit
		again string // in the answer to the repeat
		once  int
	}{
		"":      {"#outcome-unknown", 1},
		"yes":   {"failed", 1},
		"no":    {"failed", 2},
		"maybe": {"#outcome-unknown", 1},
	} {
		t.Run(says, func(t *testing.T) {
			var got []http.Header
			s := newShop(t)
			s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = append(got, r.Header)
				if says != "" {
					w.Header().Set("Latch-Commit", says)
				}
				http.Error(w, "failed", http.StatusBadGateway)
			})
			g := start(t, guarded(s, "memory"))
			for _, again := range []string{"failed", tt.again} {
				r := g.request(t.Context(), "k", "")
				r.Header["Latch-Key"], r.Header["Latch_Key"] = []string{"forged"}, []string{"forged"}
				answer := send(t, r)
				require.Contains(t, answer.body, again)
				require.NotContains(t, answer.header, "Latch-Commit")
			}
			require.Len(t, got, tt.once)
			for _, h := range got {
				require.Len(t, h.Get("Latch-Key"), 43)
				require.Equal(t, got[0].Get("Latch-Key"), h.Get("Latch-Key"))
				require.Equal(t, "1", h.Get("Latch-Attempt"))
				require.NotContains(t, h, "Latch_Key")
			}
		})
	}
}

// TestLockWhileTheUpstreamIsLate: the gateway has given up, and the upstream has not. With
// unknown_hold the next order is refused, and without it there are two at once.
func TestLockWhileTheUpstreamIsLate(t *testing.T) {
	for name, tt := range map[string]struct {
		hold  string
		again int
		once  int
	}{
		"unknown_hold": {"unknown_hold 1h", 409, 1},
		"without":      {"", 201, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			g := start(t, strings.Replace(impatient(guarded(s, "memory")), `idempotent orders {
			scope {header.X-User}
			key   optional-idempotency-key
`, `lock user {
			key {header.X-User}
			`+tt.hold+`
`, 1))
			require.Equal(t, 504, g.order("", "be late").status)
			require.Equal(t, tt.again, g.order("", "").status)
			require.Equal(t, tt.once, s.placed())
		})
	}
}

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
			config := site(newShop(t), "root /srv\n"+guardLines+"reverse_proxy "+s.addr+" {\ntransport latch fastcgi {\nsplit .php\n}\n}")
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
	listener := must.Get(net.Listen("tcp", s.addr))(s.t)
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
