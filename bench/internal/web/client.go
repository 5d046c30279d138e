package web

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// Conn is one connection of a client that does as little as a client can, since
// what it costs is taken from the server that it asks: requests are written from
// one buffer, and of an answer only status and length are looked at. It is not
// safe for concurrent use.
type Conn struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
	user    []byte // within request
	key     []byte // within request
}

// answerTimeout is the time after which a server counts as hung.
const answerTimeout = 30 * time.Second

const order = "POST /orders HTTP/1.1\r\n" +
	"Host: desk\r\n" +
	"Content-Type: application/json\r\n" +
	"X-User-ID: user-00000000\r\n" +
	"Idempotency-Key: 00000000-0000-4000-8000-000000000000\r\n" +
	"Content-Length: 26\r\n\r\n" +
	`{"sku":"tea","quantity":1}`

// Dial connects to a Service.
func Dial(ctx context.Context, addr string) (*Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &Conn{conn: conn, in: bufio.NewReader(conn), request: []byte(order)}
	field := func(name string, width int) []byte {
		end := bytes.Index(c.request, []byte(name))
		end += bytes.IndexByte(c.request[end:], '\r')
		return c.request[end-width : end]
	}
	c.user, c.key = field("X-User-ID", 8), field("Idempotency-Key", 12)
	return c, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Order sends the order of a user under a key, each given by its number, and
// returns the status of the answer.
func (c *Conn) Order(user, key int) (status int, err error) {
	write(c.user, user)
	write(c.key, key)
	if err := c.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return 0, err
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	return c.answer()
}

// write writes n in decimal, with zeros before it.
func write(field []byte, n int) {
	for i := len(field) - 1; i >= 0; i-- {
		field[i] = byte('0' + n%10)
		n /= 10
	}
}

var errAnswer = errors.New("web: an answer that the client of the benchmark does not understand")

// answer reads one answer, which has to announce its length.
func (c *Conn) answer() (status int, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < len("HTTP/1.1 201") {
		return 0, fmt.Errorf("%w: %q", errAnswer, line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, fmt.Errorf("%w: %q", errAnswer, line)
	}
	length := -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		name, value, ok := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		if !ok {
			break // the empty line
		}
		if bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, fmt.Errorf("%w: %q", errAnswer, line)
			}
		}
	}
	if length < 0 {
		return 0, fmt.Errorf("%w: no Content-Length", errAnswer)
	}
	_, err = io.CopyN(io.Discard, c.in, int64(length))
	return status, err
}
