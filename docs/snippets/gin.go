package snippets

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// GinGuard makes a gin middleware from a guard. A request that the guard refuses
// does not reach gin's later handlers.
func GinGuard(guard func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		writer, request, passed := c.Writer, c.Request, false
		defer func() { c.Writer, c.Request = writer, request }()
		guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed = true
			guarded := &ginWriter{ResponseWriter: writer, w: w, status: http.StatusOK, size: -1}
			c.Writer, c.Request = guarded, r
			c.Next()
			guarded.WriteHeaderNow()
		})).ServeHTTP(writer, request)
		if !passed {
			c.Abort()
		}
	}
}

// ginWriter is a gin.ResponseWriter over the guard's writer.
type ginWriter struct {
	gin.ResponseWriter // for the methods that do not concern the guard
	w                  http.ResponseWriter
	status, size       int // size is -1 until the header was written, as in gin
}

func (g *ginWriter) Header() http.Header         { return g.w.Header() }
func (g *ginWriter) Status() int                 { return g.status }
func (g *ginWriter) Size() int                   { return g.size }
func (g *ginWriter) Written() bool               { return g.size >= 0 }
func (g *ginWriter) Unwrap() http.ResponseWriter { return g.w }

func (g *ginWriter) WriteHeader(code int) {
	if code > 0 && !g.Written() {
		g.status = code
	}
}

func (g *ginWriter) WriteHeaderNow() {
	if !g.Written() {
		g.size = 0
		g.w.WriteHeader(g.status)
	}
}

func (g *ginWriter) Write(p []byte) (int, error) {
	g.WriteHeaderNow()
	n, err := g.w.Write(p)
	g.size += n
	return n, err
}

func (g *ginWriter) WriteString(s string) (int, error) {
	g.WriteHeaderNow()
	n, err := io.WriteString(g.w, s)
	g.size += n
	return n, err
}

func (g *ginWriter) Flush() {
	g.WriteHeaderNow()
	_ = http.NewResponseController(g.w).Flush()
}

func (g *ginWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(g.w).Hijack()
	if err == nil {
		g.size = max(g.size, 0)
	}
	return conn, buf, err
}
