package snippets_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/docs/snippets"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestGinReplays(t *testing.T) {
	effects := 0
	var status int
	r := gin.New()
	r.Use(func(c *gin.Context) {
		c.Next()
		status = c.Writer.Status()
	})
	orders := r.Group("/", snippets.GinGuard(once(lock.New(memstore.New()))))
	orders.POST("/json", func(c *gin.Context) {
		effects++
		var order struct{ Sku string }
		require.NoError(t, c.BindJSON(&order))
		require.Equal(t, 1, lock.Attempt(c.Request.Context()))
		require.False(t, c.Writer.Written())
		c.Header("Location", "/orders/1")
		c.JSON(http.StatusCreated, gin.H{"id": effects, "sku": order.Sku})
		require.True(t, c.Writer.Written())
		require.Positive(t, c.Writer.Size())
		require.Equal(t, http.StatusCreated, c.Writer.Status())
	})
	orders.POST("/status", func(c *gin.Context) { effects++; c.Status(http.StatusNoContent) })
	orders.POST("/string", func(c *gin.Context) { effects++; c.String(http.StatusConflict, "sold out") })
	orders.POST("/abort", func(c *gin.Context) {
		effects++
		c.AbortWithStatusJSON(http.StatusUnprocessableEntity, gin.H{"error": "sku"})
	})
	orders.POST("/redirect", func(c *gin.Context) { effects++; c.Redirect(http.StatusSeeOther, "/orders/1") })
	orders.POST("/nothing", func(*gin.Context) { effects++ })
	requireReplays(t, r, &effects, map[string]int{
		"/json": 201, "/status": 204, "/string": 409, "/abort": 422, "/redirect": 303, "/nothing": 200,
	})
	send(r, "/json", "k")
	require.Equal(t, http.StatusCreated, status, "middleware outside sees the answer")
}

func TestGinFailuresRunAgain(t *testing.T) {
	effects := 0
	r := gin.New()
	r.Use(gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }))
	r.Use(snippets.GinGuard(once(lock.New(memstore.New()))))
	r.POST("/panic", func(*gin.Context) { effects++; panic("boom") })
	r.POST("/stream", func(c *gin.Context) {
		effects++
		_, _ = c.Writer.WriteString("a")
		c.Writer.Flush()
	})
	for range 2 {
		require.Equal(t, 500, send(r, "/panic", "k").Code)
	}
	require.Equal(t, 2, effects)
	require.Equal(t, "a", send(r, "/stream", "s").Body.String())
	require.Equal(t, 409, send(r, "/stream", "s").Code, "it cannot be replayed, and does not run again")
	require.Equal(t, 3, effects)
}

func TestGinLocks(t *testing.T) {
	r := gin.New()
	inside := 0
	r.POST("/orders", snippets.GinGuard(onePerUser(lock.New(memstore.New()))), func(c *gin.Context) {
		if inside++; inside == 1 {
			require.Equal(t, http.StatusConflict, send(r, "/orders", "").Code)
		}
		c.Status(http.StatusCreated)
	})
	require.Equal(t, http.StatusCreated, send(r, "/orders", "").Code)
	require.Equal(t, 1, inside)
}

// TestGinWrapHGuardsNothing is why there is a GinGuard: gin goes on to the
// next handler whatever a wrapped one has answered.
func TestGinWrapHGuardsNothing(t *testing.T) {
	effects := 0
	r := gin.New()
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	r.POST("/orders", gin.WrapH(once(lock.New(memstore.New()))(nothing)), func(*gin.Context) { effects++ })
	send(r, "/orders", "k")
	send(r, "/orders", "k")
	require.Equal(t, 2, effects)
}
