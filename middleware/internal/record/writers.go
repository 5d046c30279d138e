package record

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"reflect"
	"strings"
)

// StatusWriter notes the status of an answer. It has no ReadFrom, so that io.Copy calls Write.
type StatusWriter struct {
	http.ResponseWriter

	Code int // 0: nothing sent yet
}

// WriteHeader notes the final status: informational answers come before it, and no further HTTP answer follows 101.
func (w *StatusWriter) WriteHeader(code int) {
	if w.Code == 0 && (code >= 200 || code == http.StatusSwitchingProtocols) {
		w.Code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *StatusWriter) Write(b []byte) (int, error) {
	w.ImplyOK()
	return w.ResponseWriter.Write(b)
}

// FlushError is called by http.ResponseController. Flushing sends the header.
func (w *StatusWriter) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		w.ImplyOK()
	}
	return err //nolint:wrapcheck // of the ResponseController
}

// Flush is for handlers that refuse to stream without an http.Flusher, which cannot report an error.
func (w *StatusWriter) Flush() { _ = w.FlushError() }

// Hijack takes over the connection. No further HTTP answer follows, as after 101.
func (w *StatusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.Code == 0 {
		w.Code = http.StatusSwitchingProtocols
	}
	return conn, buf, err //nolint:wrapcheck // of the ResponseController
}

// Unwrap lets http.ResponseController reach the writer of the server.
func (w *StatusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ImplyOK notes 200 if no status was written, as net/http does.
func (w *StatusWriter) ImplyOK() {
	if w.Code == 0 {
		w.Code = http.StatusOK
	}
}

// AnsweredOutside reports whether a request whose handler has written nothing is answered outside of the guard, to w or
// to a writer that w wraps, or later by a framework. status is 200 unless it is known.
func AnsweredOutside(w http.ResponseWriter) (status int, outside bool) {
	for {
		switch t := w.(type) {
		case *Answer: // of a guard further out
			status = t.Status
		case *StatusWriter:
			status = t.Code
		case ginWriter:
			return t.Status(), true
		case interface { // negroni
			Status() int
			Written() bool
		}:
			if t.Written() {
				status = t.Status()
			}
		case interface { // chi
			Status() int
			BytesWritten() int
		}:
			status = t.Status()
		default:
			kind := reflect.TypeOf(t)
			switch {
			case IsOfFiber(t):
				return http.StatusOK, true
			case kind.String() == "*echo.Response" && strings.HasPrefix(kind.Elem().PkgPath(), "github.com/labstack/echo/"): // its state is in fields
				if code := reflect.Indirect(reflect.ValueOf(t)).FieldByName("Status"); code.CanInt() && code.Int() != 0 {
					return int(code.Int()), true
				}
				return http.StatusOK, true
			}
		}
		if status != 0 {
			return status, true
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return http.StatusOK, false
		}
		w = wrapper.Unwrap()
	}
}

// ginWriter is a writer of gin, which sends a status after all middleware has returned.
type ginWriter interface {
	Status() int
	WriteHeaderNow()
}

// IsOfFiber reports whether w is of fiber's adaptor, whose handlers run after the guard has returned.
func IsOfFiber(w http.ResponseWriter) bool {
	return reflect.TypeOf(w).String() == "*fasthttpadaptor.writer"
}
