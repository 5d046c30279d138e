package latchecho_test

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	latchecho "github.com/httplatch/httplatch/middleware/echo"
)

// The database is away for the first request. Its repeat, with the same key, makes the order,
// and the one after that gets the answer again.
func Example() {
	once := latch.Idempotent(lock.New(memstore.New()), keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)

	tries := 0
	e := echo.New()
	e.POST("/orders", func(c *echo.Context) error {
		if tries++; tries == 1 {
			return errors.New("database is away")
		}
		return c.String(http.StatusCreated, fmt.Sprintf("order %d", tries))
	}, latchecho.Use(once))

	for range 3 {
		w := send(e, "/orders", "8e03978e")
		fmt.Println(w.Code, "replayed:", w.Header().Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// 500 replayed: false
	// 201 replayed: false
	// 201 replayed: true
}
