package snippets_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/walk"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
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

func (a *application) whileIn(f func()) { a.during.Store(&f) }

var newLocker = guardtest.NewLocker

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

// do sends a request. headers are names and values; one without a value is not sent.
func do(h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	return guardtest.Serve(h, r)
}

const tea = `{"sku":"tea"}`

func basic(user string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"))
}

func ask(h http.Handler, method, path, key string) *httptest.ResponseRecorder {
	return do(h, method, path, tea, "Authorization", basic("42"), "Idempotency-Key", key)
}

func replayed(w *httptest.ResponseRecorder) bool {
	return w.Header().Get("Idempotent-Replayed") == "true"
}

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(walk.Main(m).Run())
}

func once(l *lock.Locker) func(http.Handler) http.Handler {
	return latch.Idempotent(l, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)
}

func send(h http.Handler, path, key string) *httptest.ResponseRecorder {
	return do(h, http.MethodPost, path, tea, "Content-Type", "application/json", "X-User-ID", "42", "Idempotency-Key", key)
}
