package record

import (
	"bufio"
	"errors"
	"net"
	"net/http"
)

// StatusWriter notes the status of an answer. It has no ReadFrom, so that io.Copy calls
// Write.
type StatusWriter struct {
	http.ResponseWriter

	Code int // 0: nothing sent yet
}

// WriteHeader notes the final status. Informational answers come before it. 101 is final, because
// no further HTTP answer follows it.
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

// Flush is for handlers that ask for an http.Flusher and refuse to stream without one.
func (w *StatusWriter) Flush() {
	_ = w.FlushError() // http.Flusher cannot report it
}

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
