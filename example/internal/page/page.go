// Package page is the page of the order desk: it plays orders behind several guards, while the store loses a reply.
package page

import (
	"crypto/rand"
	"embed"
	"html/template"
	"net/http"
	"path"
	"time"

	"github.com/httplatch/httplatch/form"
	latch "github.com/httplatch/httplatch/middleware"
)

//go:embed *.html *.css *.js *.svg
var files embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"short": func(id string) string { return id[:min(len(id), 6)] },
	"scene": func(id, guard, title, will string, clicks ...string) scene {
		return scene{id, guard, title, will, clicks}
	},
	"integrity": func() string { return form.Integrity },
}).ParseFS(files, "page.html"))

// scene is a part of a story: where it is shown, and what will be seen there.
type scene struct {
	ID, Guard, Title, Will string
	Clicks                 []string
}

// Data has the values on the page. The fields after Lose are for browsers without JavaScript.
type Data struct {
	Ours                             string // the guard that stands for httplatch: both, or lock
	Carts, Later, Metrics            bool   // what the desk has besides orders
	Once, User, SKU, Quantity, Guard string // of the form; Once is its one-time key
	Slow, Lose                       bool
	Outcome, Orders                  any // of the form that led here, or nil; the newest orders of the user
	Lockout, Count                   int // for how many seconds the naive lock keeps the user out; how many orders there are
}

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// New returns the page of a new visitor.
func New() Data {
	return Data{Ours: "both", Once: rand.Text(), User: "42", SKU: "tea", Quantity: "1", Guard: "both", Slow: true}
}

// Show answers with the page.
func (d Data) Show(w http.ResponseWriter, status int) {
	w.Header().Set("Cache-Control", "private, no-cache") // not no-store: the back button shows the form that was sent, with its key
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy)
	w.WriteHeader(status)
	_ = page.Execute(w, d) // fails only if the client has left
}

// types are the media types of the page's files. Not every system knows them.
var types = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// Asset is GET /assets/{name}.
func Asset(w http.ResponseWriter, r *http.Request) {
	content, err := files.ReadFile(path.Base(r.URL.Path))
	contentType := types[path.Ext(r.URL.Path)]
	if err != nil || contentType == "" {
		refuse(w, r, http.StatusNotFound, "There is nothing at this path.", 0)
		return
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(content) //nolint:gosec // an embedded file
}

// refuse answers with a refusal, which no guard keeps.
func refuse(w http.ResponseWriter, r *http.Request, status int, detail string, again time.Duration) {
	(&latch.Problem{Status: status, Title: http.StatusText(status), Detail: detail, RetryAfter: again}).Respond(w, r, nil)
}
