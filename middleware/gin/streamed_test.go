package latchgin_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
	latchgin "github.com/httplatch/httplatch/middleware/gin"
)

// TestStreamGoesOnWithoutItsClient: c.Stream ends when the client has left. Behind the guard, the rest of the
// stream is recorded, so that a repeat does not get a part as the whole.
func TestStreamGoesOnWithoutItsClient(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	r := gin.New()
	guard := latch.Idempotent(newLocker(lock.WithWait(time.Minute)), byUser, keyfunc.IdempotencyKey)
	r.POST("/orders", func(c *gin.Context) {
		if c.GetHeader("X-Gone") != "" {
			left := c.Request.Context().Done()
			go func() {
				<-left
				close(gone)
			}()
		}
		c.Next()
	}, latchgin.Use(guard), func(c *gin.Context) {
		n := 0
		c.Stream(func(io.Writer) bool {
			c.SSEvent("step", n)
			if n++; n == 2 {
				c.Writer.Flush()
				<-gone
			}
			return n < 5
		})
	})
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	request := func() *http.Request {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders", strings.NewReader("{}"))
		require.NoError(t, err)
		q.Header.Set("X-User-ID", "42")
		q.Header.Set("Idempotency-Key", "k")
		return q
	}
	q := request()
	q.Header.Set("X-Gone", "yes")
	res, err := server.Client().Do(q)
	require.NoError(t, err)
	_, err = bufio.NewReader(res.Body).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, res.Body.Close()) // the client leaves

	res, err = server.Client().Do(request())
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, "true", res.Header.Get("Idempotent-Replayed"))
	var want strings.Builder
	for n := range 5 {
		_, _ = fmt.Fprintf(&want, "event:step\ndata:%d\n\n", n)
	}
	require.Equal(t, want.String(), string(body))
}
