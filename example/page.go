package main

import (
	"bytes"
	_ "embed" // for page.html
	"html/template"
	"net/http"
)

//go:embed page.html
var pageHTML string

var orderPage = template.Must(template.New("page").Parse(pageHTML))

// page is GET /.
func page(w http.ResponseWriter, _ *http.Request) {
	answerHTML(w, orderPage, nil)
}

// answerHTML sends a page whose scripts and styles are its own.
func answerHTML(w http.ResponseWriter, t *template.Template, data any) {
	var body bytes.Buffer
	if err := t.Execute(&body, data); err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; img-src data:; script-src 'unsafe-inline'; "+
		"style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'")
	// A client that has gone away is the only cause of an error.
	_, _ = body.WriteTo(w)
}
