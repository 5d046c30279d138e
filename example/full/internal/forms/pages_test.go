package forms_test

import (
	"bytes"
	"crypto/rand"
	"html/template"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/httplatch/httplatch/form"
)

// strictPolicy is the strictest under which a page has a form and a script.
const strictPolicy = "default-src 'none'; script-src 'self'; form-action 'self'"

const plainForm = `<form method="post" action="/orders" data-latch>{{.Field}}
<label>Article <input name="sku"></label>
<button name="how" value="by mail">Order</button>
</form>`

var layout = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Shop</title>
{{.Head}}
{{if .Style}}<link rel="stylesheet" href="/style.css">{{end}}
{{if .Script}}<script src="/latch.js?v={{.Integrity}}"{{if .Check}} integrity="{{.Integrity}}"{{end}} defer></script>{{end}}
{{range $path, $_ := .Scripts}}<script src="{{$path}}" defer></script>{{end}}
</head>
<body><main>
{{.Main}}
<p><a href="/new">Another order</a></p>
</main></body>
</html>
`))

// pages are those of the shop, in one layout.
func (s *shop) pages(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	if s.form == "" {
		s.form = plainForm
	}
	if s.policy == "" {
		s.policy = strictPolicy
	}
	mux.HandleFunc("GET /latch.js", func(w http.ResponseWriter, r *http.Request) {
		if s.lateScript {
			s.sent(t, 1)
		}
		form.Script().ServeHTTP(w, r)
	})
	for path, content := range s.scripts {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
			_, _ = w.Write(content)
		})
	}
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write([]byte(s.style))
	})
	mux.HandleFunc("GET /new", func(w http.ResponseWriter, _ *http.Request) {
		s.show(w, http.StatusOK, "", "<h1>New order</h1>"+s.form)
	})
	mux.HandleFunc("GET /orders/{n}", func(w http.ResponseWriter, r *http.Request) {
		if s.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		answer := s.plan
		answer.noScript = s.noScript || s.bareAnswer
		answer.show(w, http.StatusOK, "", "<h1>Thank you for order "+r.PathValue("n")+"</h1>")
	})
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
}

func (p plan) show(w http.ResponseWriter, status int, head, main string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	if p.referrer != "" {
		h.Set("Referrer-Policy", p.referrer)
	}
	if !p.cached {
		h.Set("Cache-Control", "no-store")
	}
	data := map[string]any{
		"Script": !p.noScript, "Check": !p.noIntegrity, "Integrity": form.Integrity, "Scripts": p.scripts,
		"Head": template.HTML(head), "Style": p.style != "", "Field": template.HTML(""), "Token": rand.Text(),
	}
	if !p.noField {
		data["Field"] = form.Field()
	}
	var b bytes.Buffer
	if err := template.Must(template.New("").Parse(main)).Execute(&b, data); err != nil {
		panic(err)
	}
	data["Main"] = template.HTML(b.String())
	w.WriteHeader(status)
	_ = layout.Execute(w, data) // a browser may be gone
}

// latchScript is the script as it is served.
func latchScript(t *testing.T) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	form.Script().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/latch.js", nil))
	return w.Body.Bytes()
}

// fieldsOf returns the fields of a form, none of another body, and leaves the body as it was.
func fieldsOf(r *http.Request) (url.Values, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		body = nil
	}
	return url.ParseQuery(string(body))
}
