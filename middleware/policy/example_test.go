package policy_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/middleware/policy"
)

func createOrder(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

// submit sends an order of user 42, and returns the status of the answer.
func submit(h http.Handler) int {
	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	r.Header.Set("X-User-ID", "42")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// A file sets how, and the code says where.
func ExampleLoad() {
	file := strings.NewReader(`{
		"order-lock": {"kind": "lock", "name": "user", "key": "user", "cooldown": "5s"}
	}`)
	locker := lock.New(memstore.New())
	guards, err := policy.Load(file, locker, map[string]keyfunc.Func{
		"user": keyfunc.Header("X-User-ID"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	orders := guards.Get("order-lock")(http.HandlerFunc(createOrder))
	if err := guards.Check(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(submit(orders), submit(orders))
	// Output:
	// 201 429
}

// Everything that is wrong is said at once.
func ExampleLoad_mistakes() {
	file := strings.NewReader(`{
  "order-lock": {"kind": "lock", "name": "user", "key": "usr", "cooldown": "5"},
  "order-once": {"kind": "idempotent", "scope": "user", "keep": "24h"}
}`)
	_, err := policy.Load(file, lock.New(memstore.New()), map[string]keyfunc.Func{
		"user": keyfunc.Header("X-User-ID"),
	})
	fmt.Println(err)
	// Output:
	// line 2, column 57: guard "order-lock", key: the code offers no key function "usr": write user
	// line 2, column 76: guard "order-lock", cooldown: "5" is not a duration: write a number with a unit, in quotes, like "30s", "500ms" or "24h"
	// line 3, column 3: guard "order-once": it has no key, which guards of kind idempotent need: add it
}
