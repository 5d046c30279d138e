package form

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed latch.min.js
var script []byte

// scriptAge lets a browser keep the script for a year, if the URL names the version.
const scriptAge = "public, max-age=31536000, immutable"

// Script returns a handler that serves the script latch.js, to GET and HEAD, at any path:
//
//	mux.Handle("GET /latch.js", form.Script())
//
// With [Integrity] as the parameter "v" of its URL, the script may be cached for a year, because
// another version has another URL. Without it, browsers ask each time, and get a 304 if the
// script is unchanged. It has less than 2,600 bytes for clients that accept gzip. It is a classic
// script: load it with "defer". It works under the Content-Security-Policy
// "default-src 'none'; script-src 'self'; form-action 'self'". It sets cookies whose names
// begin with "latch-". They are not secret.
func Script() http.Handler {
	const tag = `"` + Integrity + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/javascript; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-cache")
		if r.URL.Query().Get("v") == Integrity {
			h.Set("Cache-Control", scriptAge)
		}
		h.Add("Vary", "Accept-Encoding")
		// Each encoding has its own tag, or a cache could combine a range or a 304 of one with
		// another.
		h.Set("ETag", tag)
		body := script
		if r.Header.Get("Range") == "" && acceptsGzip(r.Header.Values("Accept-Encoding")) {
			h.Set("ETag", tag[:len(tag)-1]+`-gzip"`)
			h.Set("Content-Encoding", "gzip")
			body = compressed()
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
}

var compressed = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = z.Write(script)                                // a Buffer does not fail
	_ = z.Close()
	return b.Bytes()
})

// acceptsGzip reports whether gzip is in the list, and not with the weight 0.
func acceptsGzip(lists []string) bool {
	for _, list := range lists {
		for coding := range strings.SplitSeq(list, ",") {
			name, params, _ := strings.Cut(coding, ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			_, weight, weighted := strings.Cut(params, "=")
			q, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
			return !weighted || err == nil && q > 0
		}
	}
	return false
}
