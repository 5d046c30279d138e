package keyfunc_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
)

// capture is a middleware that keeps the result of f and the value that the handler gets.
type capture struct {
	key, seen string
	err       error
}

func (c *capture) around(f keyfunc.Func) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.key, c.err = f(r)
			next.ServeHTTP(w, r)
		})
	}
}

func (c *capture) ServeHTTP(_ http.ResponseWriter, r *http.Request) { c.seen = r.PathValue("id") }

// routers mounts the middleware on the route /orders/{id}/pay in every way there is.
var routers = map[string]func(*capture, keyfunc.Func) http.Handler{
	"ServeMux": func(c *capture, f keyfunc.Func) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /orders/{id}/pay", c.around(f)(c))
		return mux
	},
	"chi": func(c *capture, f keyfunc.Func) http.Handler {
		mux := chi.NewRouter()
		mux.With(c.around(f)).Method(http.MethodPost, "/orders/{id}/pay", c)
		return mux
	},
	"chi, nested": func(c *capture, f keyfunc.Func) http.Handler {
		mux := chi.NewRouter()
		mux.Route("/orders/{id}", func(sub chi.Router) {
			sub.Use(c.around(f))
			sub.Method(http.MethodPost, "/pay", c)
		})
		return mux
	},
}

func TestPathValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path            string
		want            outcome
		seen, seenByChi string // by the handler: this is why it is unescaped
	}{
		{"7", key("7"), "7", "7"},
		{"%37", key("7"), "7", "%37"},
		{"%2537", key("7"), "%37", "%37"},
		{"a%2Fb", key("a/b"), "a/b", "a%2Fb"},
		{"Zo%C3%AB", key("Zoë"), "Zoë", "Zoë"},
		{"100%25", refused(400, `keyfunc: path value id has a "%" that is no escape`), "100%", "100%"},
		{secret + "%00", refused(400, "control characters"), secret + "\x00", secret + "\x00"},
		{secret + "%251F", refused(400, "control characters"), secret + "%1F", secret + "%1F"},
		{secret + strings.Repeat("x", 1024), refused(400, "over 1024 bytes"), "", ""},
	} {
		for name, router := range routers {
			parallel.Run(t, name+" "+c.path[:min(8, len(c.path))], func(t *testing.T) {
				var got capture
				var checked bool
				f := func(r *http.Request) (string, error) {
					checked = true
					c.want.check(t, keyfunc.PathValue("id"), r)
					return "", nil
				}
				r := httptest.NewRequest(http.MethodPost, "/orders/"+c.path+"/pay", nil)
				router(&got, f).ServeHTTP(httptest.NewRecorder(), r)
				require.True(t, checked)
				switch {
				case c.seen == "":
				case name == "ServeMux":
					require.Equal(t, c.seen, got.seen)
				case name == "chi":
					require.Equal(t, c.seenByChi, got.seen)
				}
			})
		}
	}
}

// Around the router no route is known yet; that must be loud.
func TestPathValueAroundTheRouter(t *testing.T) {
	t.Parallel()
	f := keyfunc.PathValue("id")
	var onMux, onChi capture
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", &onMux)
	router := chi.NewRouter()
	router.Use(onChi.around(f))
	router.Method(http.MethodPost, "/orders/{id}", &onChi)

	for got, h := range map[*capture]http.Handler{&onMux: onMux.around(f)(mux), &onChi: router} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders/7", nil))
		require.Equal(t, "7", got.seen)
		require.ErrorIs(t, got.err, keyfunc.ErrMissing)
		require.EqualError(t, got.err, "keyfunc: path value id is missing; mount the guard on a route that has it, not around the router")
	}
}
