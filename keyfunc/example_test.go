package keyfunc_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
)

func ExampleHeader() {
	f := keyfunc.Header("X-User-ID")

	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	_, err := f(r)
	fmt.Println(err)

	r.Header.Set("X-User-ID", "42")
	fmt.Println(f(r))

	r.Header.Add("X-User-ID", "43")
	_, err = f(r)
	fmt.Println(err)
	// Output:
	// keyfunc: header X-User-ID is missing; let the gateway set it
	// 42 <nil>
	// keyfunc: header X-User-ID is sent twice; send it once
}

func ExamplePathValue() {
	f := keyfunc.PathValue("id")
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/pay", func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(f(r))
	})
	for _, path := range []string{"/orders/7/pay", "/orders/%37/pay"} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, nil))
	}
	// Output:
	// 7 <nil>
	// 7 <nil>
}

func ExampleCanonicalJSON() {
	for _, body := range []string{`{"quantity":1,"sku":"tea"}`, `{ "sku": "tea", "quantity": 1.0 }`} {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
		fmt.Println(keyfunc.CanonicalJSON(r))
	}
	// Output:
	// {"quantity":1,"sku":"tea"} <nil>
	// {"quantity":1,"sku":"tea"} <nil>
}

func ExampleJSON() {
	f := keyfunc.JSON("/order/id")
	for _, body := range []string{
		`{"order": {"id": 9007199254740993}}`,
		`{"order": {"id": "9007199254740993"}}`,
		`{"order": {"id": 1, "ID": 2}}`,
	} {
		fmt.Println(f(httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(body))))
	}
	// Output:
	// 9007199254740993 <nil>
	// 9007199254740993 <nil>
	//  keyfunc: JSON value /order/id cannot be read: the body has an object with two members of one name, or of names that differ only in case; send one of them
}

func ExampleForm() {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("sku=A-1&once=8c1f"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	fmt.Println(keyfunc.Form("once")(r))
	fmt.Println(r.PostFormValue("sku")) // the handler still has the body
	// Output:
	// 8c1f <nil>
	// A-1
}

func ExampleContext() {
	type userKey struct{}
	userID := func(ctx context.Context) string {
		id, _ := ctx.Value(userKey{}).(string)
		return id
	}
	f := keyfunc.Context(userID)

	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	_, err := f(r)
	var refusal *keyfunc.Error
	fmt.Println(errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized)

	r = r.WithContext(context.WithValue(r.Context(), userKey{}, "42"))
	fmt.Println(f(r))
	// Output:
	// true
	// 42 <nil>
}

// The key of a route, and the same key in a worker.
func ExampleJoin() {
	f := keyfunc.Join(keyfunc.Header("X-Tenant"), keyfunc.Query("order"))

	r := httptest.NewRequest(http.MethodPost, "/pay?order=7", nil)
	r.Header.Set("X-Tenant", "a&b")
	key, err := f(r)
	fmt.Printf("%q %v\n", key, err)
	fmt.Println(lock.Key("order", key), lock.Key("order", "a&b", "7"))
	// Output:
	// "\x1fa~26b&7" <nil>
	// order=a~26b&7 order=a~26b&7
}

func ExampleEach() {
	f := keyfunc.Each("/items/*/sku")
	body := strings.NewReader(`{"items": [{"sku": "tea"}, {"sku": 7}, {"sku": "tea"}]}`)
	fmt.Println(f(httptest.NewRequest(http.MethodPost, "/carts", body)))
	// Output: [tea 7] <nil>
}

func ExampleHash() {
	session := func(r *http.Request) (string, error) {
		c, err := r.Cookie("session")
		if err != nil {
			return "", keyfunc.ErrMissing
		}
		return c.Value, nil
	}
	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	r.AddCookie(&http.Cookie{Name: "session", Value: "very secret"})
	key, err := keyfunc.Hash(session)(r)
	fmt.Println(len(key), strings.Contains(key, "secret"), err)
	// Output: 64 false <nil>
}

func ExampleOptional() {
	f := keyfunc.Optional(keyfunc.Header("X-Batch"))
	_, err := f(httptest.NewRequest(http.MethodPost, "/orders", nil))
	fmt.Println(errors.Is(err, keyfunc.ErrSkip))
	// Output: true
}
