package latchecho_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
	latchecho "github.com/httplatch/httplatch/middleware/echo"
	latchecho4 "github.com/httplatch/httplatch/middleware/echo/echo4"
)

var errAway = errors.New("database is away")

// TestReplays: one effect, and the same answers as by echo without a guard.
func TestReplays(t *testing.T) {
	each(t, func(t *testing.T, v version) {
		for name, tt := range map[string]struct {
			handler func(c ctx) error
			status  int
		}{
			"JSON": {func(c ctx) error {
				var order struct{ Sku string }
				if err := c.Bind(&order); err != nil {
					return err
				}
				c.writer().Header().Set("Location", "/orders/1")
				return c.JSON(http.StatusCreated, map[string]string{"sku": order.Sku})
			}, 201},
			"NoContent":              {func(c ctx) error { return c.NoContent(http.StatusNoContent) }, 204},
			"HTTPError":              {func(ctx) error { return v.httpError(http.StatusUnprocessableEntity, "sku") }, 422},
			"Redirect":               {func(c ctx) error { return c.Redirect(http.StatusSeeOther, "/orders/1") }, 303},
			"an answer and an error": {func(c ctx) error { _ = c.String(http.StatusCreated, "ok"); return errAway }, 201},
			"NoContent of a 200":     {func(c ctx) error { return c.NoContent(http.StatusOK) }, 200},
		} {
			parallel.Run(t, name, func(t *testing.T) {
				runs := 0
				wire := func(guard wrap) http.Handler {
					e := v.new()
					e.handle(http.MethodPost, "/orders", func(c ctx) error { runs++; return tt.handler(c) }, guard)
					return e
				}
				first := send(wire(unguarded), "/orders", "k")
				require.Equal(t, tt.status, first.Code)
				h := wire(v.use(once()))
				require.Equal(t, first.Result(), send(h, "/orders", "k").Result(), "the answer is as without the guard")
				guardtest.RequireReplay(t, first, send(h, "/orders", "k"))
				require.Equal(t, 2, runs, "one without the guard, and one behind it")
			})
		}
	})
}

// TestErrorsRunAgain: an error that is a failure frees the key, by whichever handler of errors.
func TestErrorsRunAgain(t *testing.T) {
	each(t, func(t *testing.T, v version) {
		for name, set := range map[string]func(e app){
			"default":                 func(app) {},
			"custom":                  func(e app) { e.answerErrors(func(c ctx, _ error) { _ = c.String(http.StatusBadGateway, "away") }) },
			"one that writes nothing": func(e app) { e.answerErrors(func(ctx, error) {}) },
			"middleware outside, where that writes nothing": func(e app) {
				e.answerErrors(func(ctx, error) {})
				e.use(func(next handler) handler {
					return func(c ctx) error {
						if next(c) != nil {
							return c.String(http.StatusBadGateway, "away")
						}
						return nil
					}
				})
			},
		} {
			parallel.Run(t, name, func(t *testing.T) {
				runs := 0
				wire := func(guard wrap) http.Handler {
					e := v.new()
					set(e)
					e.handle(http.MethodPost, "/orders", func(c ctx) error {
						if runs++; runs == 1 {
							return errAway
						}
						return c.NoContent(http.StatusCreated)
					}, guard)
					return e
				}
				want := send(wire(unguarded), "/orders", "k")
				runs = 0
				h := wire(v.use(once()))
				require.Equal(t, want.Result(), send(h, "/orders", "k").Result())
				require.Equal(t, http.StatusCreated, send(h, "/orders", "k").Code)
				requireReplayed(t, send(h, "/orders", "k"))
				require.Equal(t, 2, runs)

				runs = 0
				h = wire(v.use(latch.Lock(newLocker(), "user", byUser, latch.WithCooldown(time.Minute))))
				require.Equal(t, want.Result(), send(h, "/orders", "").Result())
				require.Equal(t, http.StatusCreated, send(h, "/orders", "").Code, "no cool-down")
				require.Equal(t, http.StatusTooManyRequests, send(h, "/orders", "").Code, "there is one")
			})
		}
	})
}

// Middleware outside may answer for them, with a success or a failure, so that the guard keeps neither.
func TestSilentHandlers(t *testing.T) {
	each(t, func(t *testing.T, v version) {
		for _, status := range []int{0, http.StatusCreated, http.StatusBadGateway} {
			var log bytes.Buffer
			locker := newLocker(lock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			runs := 0
			e := v.new()
			e.use(func(next handler) handler {
				return func(c ctx) error {
					if err := next(c); err != nil || status == 0 || runs == 0 {
						return err
					}
					return c.String(status, "outside")
				}
			})
			e.handle(http.MethodPost, "/orders", func(ctx) error { runs++; return nil }, v.use(latch.Idempotent(locker, byUser, keyfunc.IdempotencyKey)))
			first := send(e, "/orders", "k")
			require.Equal(t, max(status, 200), first.Code)
			require.Equal(t, 1, strings.Count(log.String(), "a handler returned without an answer"))
			require.Contains(t, send(e, "/orders", "k").Body.String(), "result-not-replayable")
			require.Equal(t, 1, runs)
		}
	})
}

// TestPanics go on to Recover outside, and free the key; inside, its error does.
func TestPanics(t *testing.T) {
	each(t, func(t *testing.T, v version) {
		guard := v.use(once())
		for name, order := range map[string][]wrap{"outside": {v.recovers, guard}, "inside": {guard, v.recovers}} {
			runs := 0
			e := v.new()
			e.handle(http.MethodPost, "/orders", func(c ctx) error {
				if runs++; runs == 1 {
					panic("boom")
				}
				return c.NoContent(http.StatusCreated)
			}, order...)
			require.Equal(t, 500, send(e, "/orders", name).Code)
			require.Equal(t, 201, send(e, "/orders", name).Code)
			require.Equal(t, 201, send(e, "/orders", name).Code)
			require.Equal(t, 2, runs, name)
		}
	})
}

// TestRoute: key functions see path values and pattern, as in net/http.
func TestRoute(t *testing.T) {
	each(t, func(t *testing.T, v version) {
		var pattern string
		onePerOrder := latch.Lock(newLocker(), "order", keyfunc.PathValue("id"))
		e := v.new()
		e.handle(http.MethodPost, "/orders/:id/pay", func(c ctx) error {
			if c.Param("id") == "7" {
				require.Equal(t, http.StatusCreated, send(e, "/orders/8/pay", "").Code)
				require.Equal(t, http.StatusConflict, send(e, "/orders/7/pay", "").Code)
			}
			return c.String(http.StatusCreated, c.Request().PathValue("id"))
		}, v.use(func(next http.Handler) http.Handler {
			return onePerOrder(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { pattern = r.Pattern; next.ServeHTTP(w, r) }))
		}))
		w := send(e, "/orders/7/pay", "")
		require.Equal(t, http.StatusCreated, w.Code)
		require.Equal(t, "7", w.Body.String())
		require.Equal(t, "/orders/:id/pay", pattern)
	})
}

func TestUsePanics(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "latchecho.Use: nil guard", func() { latchecho.Use(nil) })
	require.PanicsWithValue(t, "latchecho.Use: nil guard", func() { latchecho4.Use(nil) })
}

// TestDecompressOutsideAndInside: echo's middleware leaves the Content-Encoding of a body that it has
// decompressed, and a small body is longer when it is compressed.
func TestDecompressOutsideAndInside(t *testing.T) {
	each(t, func(t *testing.T, v version) {
		for name, inside := range map[string]bool{"outside": false, "inside": true} {
			runs := 0
			e := v.new()
			around := []wrap{v.decompresses, v.use(latch.Idempotent(newLocker(), byUser, keyfunc.JSON("/sku")))}
			if inside {
				slices.Reverse(around)
			}
			e.handle(http.MethodPost, "/orders", func(c ctx) error {
				runs++
				var order struct{ Sku string }
				if err := c.Bind(&order); err != nil || order.Sku != "tea" {
					t.Errorf("the handler got %q, %v", order.Sku, err)
				}
				return c.NoContent(http.StatusCreated)
			}, around...)
			for i, level := range []int{gzip.BestCompression, gzip.NoCompression} {
				var body bytes.Buffer
				z := must.Get(gzip.NewWriterLevel(&body, level))(t)
				must.Get(io.WriteString(z, `{"sku":"tea"}`))(t)
				require.NoError(t, z.Close())
				r := httptest.NewRequest(http.MethodPost, "/orders", &body)
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Content-Encoding", "gzip")
				r.Header.Set("Content-Length", strconv.Itoa(body.Len()))
				r.Header.Set("X-User-ID", "42")
				w := httptest.NewRecorder()
				e.ServeHTTP(w, r)
				require.Equal(t, http.StatusCreated, w.Code, "%s: %s", name, w.Body)
				require.Equal(t, i == 1, w.Header().Get("Idempotent-Replayed") == "true", name)
			}
			require.Equal(t, 1, runs, name)
		}
	})
}
