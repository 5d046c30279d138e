package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// tellingListener turns net/http's own answers to malformed requests into
// problem+json: for a NUL or a line break in a header, or too many headers. No
// handler sees such requests, and clients that get problem+json from all other
// refusals should not get text here.
type tellingListener struct{ net.Listener }

// Accept accepts a connection.
func (l tellingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		return &tellingConn{tcp}, err
	}
	return conn, err
}

// tellingConn is a TCP connection, with all that net/http looks for in one.
type tellingConn struct{ *net.TCPConn }

// plainHeaders are the headers of net/http's own answers. No answer of a handler
// has them in this order and without a Date.
var plainHeaders = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// Write writes b, which is the whole answer if it is net/http's own.
func (c *tellingConn) Write(b []byte) (int, error) {
	line, _, own := bytes.Cut(b, plainHeaders)
	status, ok := strings.CutPrefix(string(line), "HTTP/1.1 ")
	if !own || !ok || len(status) < 3 || strings.Contains(status, "\r\n") {
		return c.TCPConn.Write(b)
	}
	code, err := strconv.Atoi(status[:3])
	if err != nil {
		return c.TCPConn.Write(b)
	}
	body, err := json.Marshal(problem{http.StatusText(code), code, "This is not a request that HTTP allows; look at its headers."})
	if err != nil {
		return c.TCPConn.Write(b)
	}
	if _, err := fmt.Fprintf(c.TCPConn, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nContent-Type: application/problem+json\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s\n", code, http.StatusText(code), len(body)+1, body); err != nil {
		return 0, err
	}
	return len(b), nil
}
