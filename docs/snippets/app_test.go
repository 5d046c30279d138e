package snippets_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// auth is the authentication of the application that the pages are about.
var auth = struct {
	Require func(http.Handler) http.Handler
	UserID  func(context.Context) string
}{requireUser, userOf}

type userKey struct{}

func requireUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, ok := r.BasicAuth()
		if !ok {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

func userOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

// application has the handlers that the pages mount, and counts what they do.
type application struct {
	effects atomic.Int64
	during  atomic.Pointer[func()] // runs inside of the first handler that is called
}

func (a *application) handler(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		a.effects.Add(1)
		if during := a.during.Swap(nil); during != nil {
			(*during)()
		}
		w.WriteHeader(status)
	}
}

// whileIn calls f from inside of the next handler that runs.
func (a *application) whileIn(f func()) { a.during.Store(&f) }

func newLocker(t *testing.T, store lock.Store, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(store, opts...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	return l
}

// served is ask, repeated while the store does not answer within the default
// budget, as on a busy machine.
func served(h http.Handler, method, path, key string) *httptest.ResponseRecorder {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		w := ask(h, method, path, key)
		if w.Code != http.StatusServiceUnavailable || time.Now().After(deadline) {
			return w
		}
	}
}

// ask sends a request of user 42 with the key, if there is one.
func ask(h http.Handler, method, path, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(`{"sku":"tea"}`))
	r.SetBasicAuth("42", "")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
