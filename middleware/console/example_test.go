package console_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/middleware/console"
)

// operatorsOnly is the application's own authentication.
func operatorsOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, ok := r.BasicAuth(); !ok || password != "correct horse" {
			w.Header().Set("WWW-Authenticate", `Basic realm="operators"`)
			http.Error(w, "operators only", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func ExampleNew() {
	locker := lock.New(memstore.New())
	mux := http.NewServeMux()

	mux.Handle("/admin/locks", operatorsOnly(console.New(locker, console.WithName("orders, production"))))

	ask := func(password string) {
		r := httptest.NewRequest(http.MethodGet, "/admin/locks?q=user%3D42", nil)
		r.Header.Set("Accept", "text/html")
		r.SetBasicAuth("ann", password)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		body, _ := io.ReadAll(w.Body)
		for line := range strings.SplitSeq(string(body), "\n") {
			if strings.Contains(line, "Running for ") || strings.Contains(line, "is free") {
				fmt.Println(w.Code, strings.Contains(line, "Running for "), strings.Contains(line, "is free"))
			}
		}
		if w.Code != http.StatusOK {
			fmt.Println(w.Code)
		}
	}
	ask("a guess")
	ask("correct horse")
	_ = locker.Do(context.Background(), lock.Key("user", "42"), func(context.Context) error {
		ask("correct horse")
		return nil
	})
	// Output:
	// 401
	// 200 false true
	// 200 true false
}
