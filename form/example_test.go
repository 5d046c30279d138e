package form_test

import (
	"fmt"
	"html/template"
	"net/http"
	"net/http/httptest"
	"regexp"

	"github.com/httplatch/httplatch/form"
)

var orderPage = template.Must(template.New("order").Parse(`<!doctype html>
<title>Order</title>
<script src="/latch.js?v={{.Integrity}}" integrity="{{.Integrity}}" defer></script>
<form method="post" action="/orders" data-latch>{{.Field}}
<label>Article <input name="sku" required></label>
<button>Order</button>
</form>
`))

func ExampleScript() {
	mux := http.NewServeMux()
	mux.Handle("GET /latch.js", form.Script())
	mux.HandleFunc("GET /orders/new", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; form-action 'self'")
		_ = orderPage.Execute(w, map[string]any{"Field": form.Field(), "Integrity": form.Integrity})
	})

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/orders/new", nil))
	src := regexp.MustCompile(`src="([^"]+)"`).FindStringSubmatch(w.Body.String())[1]

	w = httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", src, nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	fmt.Println(w.Header().Get("Cache-Control"))
	// Output:
	// 200 text/javascript; charset=utf-8
	// public, max-age=31536000, immutable
}

func ExampleField() {
	field := string(form.Field())
	fmt.Println(regexp.MustCompile(`value="[A-Z2-7]{26}"`).ReplaceAllString(field, `value="..."`))
	// Output:
	// <input type="hidden" name="once" value="..." autocomplete="off">
}
