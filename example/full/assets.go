package main

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"time"

	"github.com/httplatch/httplatch/form"
)

//go:embed page
var pageFiles embed.FS

var orderPage = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"short":     short,
	"scene":     func(id, guard, title string) pageScene { return pageScene{id, guard, title} },
	"integrity": func() string { return form.Integrity },
}).ParseFS(pageFiles, "page/page.html"))

// short is enough of an order number or a key to distinguish it from others by eye.
func short(id string) string { return id[:min(len(id), 6)] }

// assetTypes are the media types of the files that the page loads. Not every
// system knows them.
var assetTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

// assetRoutes serve the files that the page loads.
func assetRoutes() (routes []route) {
	files, err := fs.ReadDir(pageFiles, "page")
	if err != nil {
		panic(err) // the file is embedded
	}
	for _, f := range files {
		contentType, ok := assetTypes[path.Ext(f.Name())]
		if !ok {
			continue // the page itself
		}
		content, err := pageFiles.ReadFile("page/" + f.Name())
		if err != nil {
			panic(err) // the file is embedded
		}
		routes = append(routes, route{"GET", "/assets/" + f.Name(), asset(contentType, content)})
	}
	return append(routes, route{"GET", "/assets/latch.js", form.Script()})
}

func asset(contentType string, content []byte) http.Handler {
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(content))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache") // ask each time; the answer is 304 if it is the same
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}
