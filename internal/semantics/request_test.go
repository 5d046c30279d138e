package semantics_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// patience is the longest time for which a row waits for an event.
const patience = 20 * time.Second

// request is a request as it goes over the wire: no client library between corrects what a row wants to send.
type request struct {
	words   []string // what is not as in every request
	method  string
	target  string
	host    string
	lines   [][2]string // header
	body    string
	bodied  bool // there is a body, which may be empty
	chunked bool
	more    int  // bytes announced beyond the body
	ends    bool // no more is sent, as of a client that was cut off
	held    bool // the handler stops before it answers, until the script lets it go
	second  bool // to the second process
}

// mod changes a request, and says so.
type mod struct {
	words string
	apply func(r *request)
}

// submission is the request that all rows begin with.
func submission(mods ...mod) request {
	r := request{method: http.MethodPost, target: "/orders", host: "shop.test", body: `{"sku":"tea"}`, bodied: true, lines: [][2]string{
		{"Content-Type", "application/json"}, {"X-User-ID", "42"}, {"Idempotency-Key", "8e03978e"},
	}}
	for _, m := range mods {
		m.apply(&r)
		if m.words != "" {
			r.words = append(r.words, m.words)
		}
	}
	return r
}

func (r *request) set(name string, values ...string) {
	var kept [][2]string
	for _, line := range r.lines {
		if !strings.EqualFold(line[0], name) {
			kept = append(kept, line)
		}
	}
	for _, v := range values {
		kept = append(kept, [2]string{name, v})
	}
	r.lines = kept
}

// wire is r in the form of HTTP/1.1.
func (r *request) wire() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.method, r.target, r.host)
	for _, line := range r.lines {
		fmt.Fprintf(&b, "%s:%s\r\n", line[0], " "+line[1])
	}
	if r.held {
		b.WriteString("X-Hold: 1\r\n")
	}
	switch {
	case r.chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		for _, piece := range []string{r.body[:len(r.body)/2], r.body[len(r.body)/2:]} {
			if piece != "" {
				fmt.Fprintf(&b, "%x\r\n%s\r\n", len(piece), piece)
			}
		}
		b.WriteString("0\r\n\r\n")
	case r.bodied:
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(r.body)+r.more, r.body)
	default:
		b.WriteString("\r\n")
	}
	return b.String()
}

// answer is the answer to a request.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	hints   []int // informational answers before it
	body    string
	length  int64
	coding  []string
	cut     bool // the body broke off
	closes  bool // Connection: close, which ReadResponse takes out of the header
}

// errNoAnswer is that the connection ended before an answer.
var errNoAnswer = errors.New("the connection ended without an answer")

// dial opens a connection and sends r.
func dial(r *request, addr string, patience time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	// A server may refuse a long body before it has read it.
	_, _ = io.WriteString(conn, r.wire())
	if tcp, ok := conn.(*net.TCPConn); ok && r.ends {
		return conn, tcp.CloseWrite()
	}
	return conn, nil
}

// read reads the answer to a request of that method.
func read(conn net.Conn, method string) (*answer, error) {
	in := bufio.NewReader(conn)
	a := new(answer)
	for {
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return nil, errors.Join(errNoAnswer, err)
		}
		if res.StatusCode < 200 && res.StatusCode != http.StatusSwitchingProtocols {
			a.hints = append(a.hints, res.StatusCode)
			continue
		}
		var body []byte
		if res.StatusCode == http.StatusSwitchingProtocols {
			body, err = io.ReadAll(in)
		} else {
			body, err = io.ReadAll(res.Body)
		}
		_ = res.Body.Close()
		a.status, a.header, a.trailer, a.body = res.StatusCode, res.Header, res.Trailer, string(body)
		a.length, a.coding, a.cut, a.closes = res.ContentLength, res.TransferEncoding, err != nil, res.Close
		a.header.Del("Date")
		return a, nil
	}
}

func send(r *request, addr string, patience time.Duration) (*answer, error) {
	conn, err := dial(r, addr, patience)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return read(conn, r.method)
}

// What can be different about a request.

func method(name string) mod { return mod{"`" + name + "`", func(r *request) { r.method = name }} }

func target(s string) mod { return mod{"to `" + s + "`", func(r *request) { r.target = s }} }

func host(s string) mod { return mod{"to host `" + s + "`", func(r *request) { r.host = s }} }

func user(s string) mod {
	return mod{"as user " + s, func(r *request) { r.set("X-User-ID", s) }}
}

func header(name string, values ...string) mod {
	words := "with `" + name + ": " + strings.Join(values, "` and `"+name+": ") + "`"
	if len(values) == 0 {
		words = "without `" + name + "`"
	}
	return mod{words, func(r *request) { r.set(name, values...) }}
}

func key(values ...string) mod {
	m := header("Idempotency-Key", values...)
	switch {
	case len(values) == 0:
		m.words = "without a key"
	case len(values) == 1:
		m.words = "with key `" + values[0] + "`"
	}
	return m
}

func longKey(n int) mod {
	return mod{"with a key of " + strconv.Itoa(n) + " bytes", func(r *request) { r.set("Idempotency-Key", strings.Repeat("k", n)) }}
}

func body(s string) mod {
	return mod{"with body `" + strings.NewReplacer("\r\n", "␍␊", "\n", "␊", "|", "\\|").Replace(s) + "`", func(r *request) { r.body, r.bodied = s, true }}
}

func typed(kind, s string) mod {
	m := body(s)
	return mod{m.words + " as `" + kind + "`", func(r *request) { m.apply(r); r.set("Content-Type", kind) }}
}

func form(s string) mod {
	m := body(s)
	return mod{"with the form `" + s + "`", func(r *request) { m.apply(r); r.set("Content-Type", "application/x-www-form-urlencoded") }}
}

func big(n int) mod {
	return mod{"with a body of " + strconv.Itoa(n) + " bytes", func(r *request) { r.body = strings.Repeat("b", n) }}
}

func noBody() mod { return mod{"without a body", func(r *request) { r.body, r.bodied = "", false }} }

func chunked() mod { return mod{"in chunks", func(r *request) { r.chunked = true }} }

func short(missing int) mod {
	return mod{"whose body lacks its last " + strconv.Itoa(missing) + " bytes", func(r *request) { r.more, r.ends = missing, true }}
}

// elsewhere sends a request to the second process.
func elsewhere() mod { return mod{"to another process", func(r *request) { r.second = true }} }

// as replaces the words of a change that would be too long.
func as(words string, m mod) mod { return mod{words, m.apply} }
