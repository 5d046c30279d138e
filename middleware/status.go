package middleware

import "net/http"

// statusWriter remembers the status of an answer. It has no ReadFrom, so that
// io.Copy comes through Write.
type statusWriter struct {
	http.ResponseWriter
	status int // 0: nothing sent yet
}

// failed reports whether the answer tells the client to expect no effect.
// A handler that returns without a word has answered 200.
func (w *statusWriter) failed() bool { return w.status >= 400 }

// WriteHeader notes the final status. Informational ones precede it; 101 is
// final, because nothing of HTTP follows it.
func (w *statusWriter) WriteHeader(code int) {
	if w.status == 0 && (code >= 200 || code == http.StatusSwitchingProtocols) {
		w.status = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	w.implyOK()
	return w.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController calls. Flushing sends the header.
func (w *statusWriter) FlushError() error {
	w.implyOK()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush is there for handlers that ask for an http.Flusher and refuse to
// stream without one.
func (w *statusWriter) Flush() {
	// http.Flusher has no way to report it.
	_ = w.FlushError()
}

// Unwrap lets http.ResponseController reach what the server offers.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) implyOK() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}
