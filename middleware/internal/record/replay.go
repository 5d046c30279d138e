package record

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
)

// Replay sends rec, an answer, to r, marked with mark.
func Replay(w http.ResponseWriter, r *http.Request, rec Record, mark string) {
	h := w.Header()
	var outside http.Header // of outer middleware, for a page
	origin := r.Header.Get("Origin")
	if origin != "" {
		outside = h.Clone()
	}
	rec.SetHeader(h)
	h[ReplayedHeader] = []string{mark}
	if rec.Sized {
		h["Content-Length"] = []string{strconv.Itoa(len(rec.Body))}
	}
	if allowed := h["Access-Control-Allow-Origin"]; origin != "" && len(allowed) > 0 && allowed[0] != "*" && allowed[0] != origin {
		// The record is for pages of another origin.
		cors := func(name string, _ []string) bool { return strings.HasPrefix(name, "Access-Control-") }
		maps.DeleteFunc(h, cors)
		maps.DeleteFunc(outside, func(name string, _ []string) bool { return !cors(name, nil) })
		maps.Copy(h, outside)
	}
	w.WriteHeader(rec.Status)
	if rec.Streamed {
		_ = http.NewResponseController(w).Flush() // else net/http adds a length, which the first answer did not have
	}
	if len(rec.Body) > 0 {
		// The only cause of an error is a client that has gone away.
		_, _ = w.Write(rec.Body)
	}
}
