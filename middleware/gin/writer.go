package latchgin

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

const unwritten = -1

// shared is the writer of handlers behind a guard: the guard's writer, until the answer
// is left to outer middleware.
type shared struct{ gin.ResponseWriter }

func (s *shared) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// writer is a gin.ResponseWriter over the writer of a guard.
type writer struct {
	gin.ResponseWriter // for methods without meaning for the guard
	w                  http.ResponseWriter
	request            *http.Request
	status, size       int  // size is unwritten until the header is written, as in gin
	set                bool // the status
}

func (g *writer) Header() http.Header         { return g.w.Header() }
func (g *writer) Status() int                 { return g.status }
func (g *writer) Size() int                   { return g.size }
func (g *writer) Written() bool               { return g.size != unwritten }
func (g *writer) Unwrap() http.ResponseWriter { return g.w }

// WriteHeader notes the status, which may change until the header is written, as in gin.
func (g *writer) WriteHeader(code int) {
	if code > 0 && !g.Written() {
		g.status, g.set = code, true
	}
}

// WriteHeaderNow writes the header to the guard.
func (g *writer) WriteHeaderNow() {
	if !g.Written() {
		g.size = 0
		g.w.WriteHeader(g.status)
	}
}

func (g *writer) Write(p []byte) (int, error) {
	g.WriteHeaderNow()
	n, err := g.w.Write(p)
	g.size += n
	return n, err
}

// WriteString saves io.WriteString a copy.
func (g *writer) WriteString(s string) (int, error) {
	g.WriteHeaderNow()
	n, err := io.WriteString(g.w, s)
	g.size += n
	return n, err
}

// Flush sends the answer so far.
func (g *writer) Flush() {
	g.WriteHeaderNow()
	_ = http.NewResponseController(g.w).Flush() // http.Flusher cannot report an error
}

// CloseNotify notifies c.Stream when the handler has to stop. The server's own notice, that the client has left, would
// cut off a stream whose rest is recorded.
func (g *writer) CloseNotify() <-chan bool {
	stop := make(chan bool, 1)
	context.AfterFunc(g.request.Context(), func() { stop <- true })
	return stop
}

// Hijack takes over the connection.
func (g *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(g.w).Hijack()
	if err == nil {
		g.size = max(g.size, 0)
	}
	return conn, buf, err
}

// outside is gin's writer for the guard.
type outside struct{ gin gin.ResponseWriter }

func (o outside) Header() http.Header         { return o.gin.Header() }
func (o outside) WriteHeader(code int)        { o.gin.WriteHeader(code) }
func (o outside) Write(p []byte) (int, error) { return o.gin.Write(p) }
func (o outside) Unwrap() http.ResponseWriter { return o.gin }
