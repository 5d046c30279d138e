package latchgin_test

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	latchgin "github.com/httplatch/httplatch/middleware/gin"
)

// The database is away for the first request. Its repeat, with the same key, makes the order,
// and the one after that gets the answer again.
func Example() {
	once := latch.Idempotent(lock.New(memstore.New()), keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)

	tries := 0
	r := gin.New()
	r.Use(func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 {
			c.JSON(http.StatusInternalServerError, gin.H{"error": "try again"})
		}
	})
	r.POST("/orders", latchgin.Use(once), func(c *gin.Context) {
		if tries++; tries == 1 {
			_ = c.Error(errors.New("database is away"))
			return
		}
		c.JSON(http.StatusCreated, gin.H{"order": tries})
	})

	for range 3 {
		w := send(r, "/orders", "8e03978e")
		fmt.Println(w.Code, w.Body, "replayed:", w.Header().Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// 500 {"error":"try again"} replayed: false
	// 201 {"order":2} replayed: false
	// 201 {"order":2} replayed: true
}
