package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/example/internal/browser"
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

// verdict is a TB that remembers how it was ended.
type verdict struct {
	testing.TB

	cleanups        []func()
	errors          []string
	skipped, failed string
}

func (v *verdict) Helper() {}

func (v *verdict) Name() string { return "judged" }

func (v *verdict) Cleanup(f func()) { v.cleanups = append(v.cleanups, f) }

func (v *verdict) Errorf(format string, args ...any) {
	v.errors = append(v.errors, fmt.Sprintf(format, args...))
}

func (v *verdict) Failed() bool { return v.failed != "" || len(v.errors) > 0 }

func (v *verdict) Fatal(args ...any) {
	v.failed = fmt.Sprint(args...)
	runtime.Goexit()
}

func (v *verdict) Fatalf(format string, args ...any) { v.Fatal(fmt.Sprintf(format, args...)) }

func (v *verdict) Skipf(format string, args ...any) {
	v.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// judged runs f as the body of a test that may end early.
func judged(t *testing.T, f func(testing.TB)) *verdict {
	t.Helper()
	v := &verdict{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			for len(v.cleanups) > 0 {
				last := v.cleanups[len(v.cleanups)-1]
				v.cleanups = v.cleanups[:len(v.cleanups)-1]
				last()
			}
		}()
		f(v)
	}()
	<-ended
	return v
}
