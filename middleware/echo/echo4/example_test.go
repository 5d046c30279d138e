package latchecho_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v4"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	latchecho "github.com/httplatch/httplatch/middleware/echo/echo4"
)

// The database is away for the first request. Its repeat, with the same key, makes the order,
// and the one after that gets the answer again.
func Example() {
	once := latch.Idempotent(lock.New(memstore.New()), keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)

	tries := 0
	e := echo.New()
	e.POST("/orders", func(c echo.Context) error {
		if tries++; tries == 1 {
			return errors.New("database is away")
		}
		return c.String(http.StatusCreated, fmt.Sprintf("order %d", tries))
	}, latchecho.Use(once))

	for range 3 {
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		r.Header.Set("X-User-ID", "42")
		r.Header.Set("Idempotency-Key", "8e03978e")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		fmt.Println(w.Code, "replayed:", w.Header().Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// 500 replayed: false
	// 201 replayed: false
	// 201 replayed: true
}
