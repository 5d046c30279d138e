package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(browser.Main(m)) }

// serve returns the URL of a site with these pages.
func serve(t *testing.T, pages map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, `<!doctype html><html lang="en"><title>Test</title><link rel="icon" href="data:,">`+body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
