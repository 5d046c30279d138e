package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"html/template"
	"log/slog"
	"net/http"
	"strings"

	latch "github.com/httplatch/httplatch/middleware"
)

//go:embed pages
var embedded embed.FS

var (
	pages = template.Must(template.New("").Funcs(template.FuncMap{
		"style":   func() string { return "?style=" + styleHash },
		"title":   func(page, name string) string { return strings.TrimSuffix(page+" – "+name, " – ") },
		"visible": visible,
	}).ParseFS(embedded, "pages/*.html"))
	style, styleHash = readStyle()
)

func readStyle() (sheet []byte, hash string) {
	sheet, err := embedded.ReadFile("pages/style.css")
	if err != nil {
		panic("console: " + err.Error()) // the binary was built without it
	}
	sum := sha256.Sum256(sheet)
	return sheet, hex.EncodeToString(sum[:8])
}

// answer answers one request.
type answer struct {
	w       http.ResponseWriter
	r       *http.Request
	logger  *slog.Logger
	name    string // of the service
	exposed bool   // every client can probably reach the console
}

// secure sets headers that make untrusted bytes in a page harmless: no scripts, no inline content,
// no content of other sites, no frame, no cache, no referrer.
func (a *answer) secure() {
	h := a.w.Header()
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept")
}

func (a *answer) html() bool { return strings.Contains(a.r.Header.Get("Accept"), "text/html") }

// style sends the style sheet. The policy allows it only as a separate file.
func (a *answer) style() {
	h := a.w.Header()
	h.Set("Content-Type", "text/css; charset=utf-8")
	h.Set("Cache-Control", "private, max-age=31536000, immutable") // the address has the hash
	_, _ = a.w.Write(style)
}

// send answers with data, as the page called name or as JSON.
func (a *answer) send(status int, name string, data any) {
	var body bytes.Buffer
	var err error
	contentType := "application/json"
	if a.html() {
		contentType = "text/html; charset=utf-8"
		err = pages.ExecuteTemplate(&body, name+".html", map[string]any{"Data": data, "Name": a.name, "Exposed": a.exposed})
	} else {
		if page, ok := data.(entryPage); ok {
			data = page.Entry
		}
		err = json.NewEncoder(&body).Encode(data)
	}
	if err != nil {
		a.logger.LogAttrs(a.r.Context(), slog.LevelError, "httplatch: the console could not write its answer", slog.Any("error", err))
		(&latch.Problem{Status: http.StatusInternalServerError, Title: "The console could not write its answer."}).ServeHTTP(a.w, a.r)
		return
	}
	a.w.Header().Set("Content-Type", contentType)
	a.w.WriteHeader(status)
	// The only cause of an error is a client that has gone away.
	_, _ = body.WriteTo(a.w)
}

// fail answers with f. Unlike a guard's problem, the answer has no type, because only people read
// it.
func (a *answer) fail(f failure) {
	if a.html() {
		a.send(f.Status, "failure", f)
		return
	}
	(&latch.Problem{Status: f.Status, Title: f.Title, Detail: f.Advice}).ServeHTTP(a.w, a.r)
}
