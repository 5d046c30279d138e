//nolint:bodyclose // what is recorded has nothing to close
package snippets_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	latchecho "github.com/httplatch/httplatch/middleware/echo"
	latchgin "github.com/httplatch/httplatch/middleware/gin"
)

// atWork is longer than a busy machine takes until the last request of a storm is served.
const atWork = 200 * time.Millisecond

// user wires a service over a store, as a user's own test gives it to latchtest.
type user = func(s lock.Store) http.Handler

func onceOver(s lock.Store) guard {
	return latch.Idempotent(lock.New(s), keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)
}

func lockOver(s lock.Store) guard {
	return latch.Lock(lock.New(s), "user", keyfunc.Header("X-User-ID"))
}

func ginService(mount func(g guard) gin.HandlerFunc, guards ...func(s lock.Store) guard) user {
	return func(s lock.Store) http.Handler {
		r := gin.New()
		r.Use(ginErrors)
		for _, g := range guards {
			r.Use(mount(g(s)))
		}
		r.POST("/orders", func(c *gin.Context) {
			var order struct{ Sku string }
			if err := c.ShouldBindJSON(&order); err != nil {
				_ = c.Error(err)
				return
			}
			time.Sleep(atWork)
			c.JSON(http.StatusCreated, gin.H{"sku": order.Sku})
		})
		return r
	}
}

// adapterOf1 is the adapter that the page of gin once had, in short: it writes an implied 200 after c.Next.
func adapterOf1(g guard) gin.HandlerFunc {
	return func(c *gin.Context) {
		writer, passed := c.Writer, false
		g(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed = true
			inside := &ginKept{ResponseWriter: writer, w: w}
			c.Writer, c.Request = inside, r
			if c.Next(); !inside.Written() {
				inside.WriteHeaderNow()
			}
		})).ServeHTTP(writer, c.Request)
		if c.Writer = writer; !passed {
			c.Abort()
		}
	}
}

type ginKept struct {
	gin.ResponseWriter
	w       http.ResponseWriter
	status  int
	written bool
}

func (k *ginKept) Header() http.Header  { return k.w.Header() }
func (k *ginKept) Written() bool        { return k.written }
func (k *ginKept) WriteHeader(code int) { k.status = code }
func (k *ginKept) WriteHeaderNow() {
	k.written = true
	k.w.WriteHeader(max(k.status, http.StatusOK))
}

func (k *ginKept) Write(p []byte) (int, error) {
	if !k.written {
		k.WriteHeaderNow()
	}
	return k.w.Write(p)
}

func echoService(mount func(g guard) echo.MiddlewareFunc) user {
	return func(s lock.Store) http.Handler {
		e := echo.New()
		e.POST("/orders", func(c *echo.Context) error {
			var order struct{ Sku string }
			if err := c.Bind(&order); err != nil {
				return err
			}
			return c.JSON(http.StatusCreated, order)
		}, mount(onceOver(s)))
		return e
	}
}

func fiberHandler(c fiber.Ctx) error {
	var order struct{ Sku string }
	if err := c.Bind().Body(&order); err != nil {
		return fiber.NewError(http.StatusBadRequest, "no order")
	}
	time.Sleep(atWork)
	return c.Status(http.StatusCreated).JSON(order)
}

func fiberWrongly(g func(s lock.Store) guard) user {
	return func(s lock.Store) http.Handler {
		app := fiber.New()
		app.Use(adaptor.HTTPMiddleware(g(s)))
		app.Post("/orders", fiberHandler)
		return adaptor.FiberApp(app)
	}
}

func fiberRightly(s lock.Store) http.Handler {
	app := fiber.New()
	app.Post("/orders", fiberHandler)
	return lockOver(s)(adaptor.FiberApp(app))
}

func userOrder() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"sku":"tea"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-User-ID", "42")
	r.Header.Set("Idempotency-Key", "8e03978e")
	return r
}

// mounts are services, and what latchtest.Incident says of each: "" if it passes.
var mounts = map[string]struct {
	service user
	says    string
}{
	"gin":                     {ginService(latchgin.Use, onceOver, lockOver), ""},
	"echo":                    {echoService(latchecho.Use), ""},
	"fiber":                   {fiberRightly, ""},
	"gin, the old adapter":    {ginService(adapterOf1, onceOver), "the request was answered with 500, and its repeat with 200: a failure has become a success"},
	"gin, an adapter by hand": {ginService(naiveGin, onceOver), `the guard "idempotent" reports: a handler returned without an answer`},
	"echo.WrapMiddleware": {
		echoService(echo.WrapMiddleware),
		`the guard "idempotent" reports: a handler returned without an answer`,
	},
	"fiber, a lock, the wrong way": {fiberWrongly(lockOver), `the guard "user" reports: a handler returned without an answer`},
	"fiber, the wrong way":         {fiberWrongly(onceOver), `the guard "idempotent" reports: a handler returned without an answer`},
	"gin, two guards of a name":    {ginService(latchgin.Use, lockOver, lockOver), `the guard "user" reports: this guard is mounted twice`},
}

const mountFor = "LATCH_MOUNT"

// TestMountOfAUser is run by TestIncidentOfMounts, as a user would.
func TestMountOfAUser(t *testing.T) {
	name := os.Getenv(mountFor)
	if name == "" {
		t.Skip("may fail, for another test")
	}
	latchtest.Incident(t, mounts[name].service, userOrder)
}

// TestIncidentOfMounts: a user's own test finds a framework mounted the wrong way.
func TestIncidentOfMounts(t *testing.T) {
	t.Parallel()
	for name, tt := range mounts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMountOfAUser$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), mountFor+"="+name)
			out, err := cmd.CombinedOutput()
			if tt.says == "" {
				require.NoError(t, err, "%s", out)
				return
			}
			require.Error(t, err, "%s", out)
			require.Regexp(t, `--- FAIL: TestMountOfAUser/(nothing_lost|failure_repeated)`, string(out))
			require.Regexp(t, regexp.QuoteMeta(tt.says), string(out))
		})
	}
}

// TestStormOfMounts: so does one that counts the orders of a storm.
func TestStormOfMounts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		service user
		orders  func(n int) bool
	}{
		"gin":                          {ginService(latchgin.Use, lockOver), func(n int) bool { return n == 1 }},
		"fiber":                        {fiberRightly, func(n int) bool { return n == 1 }},
		"fiber, a lock, the wrong way": {fiberWrongly(lockOver), func(n int) bool { return n > 1 }},
		"gin, two guards of a name":    {ginService(latchgin.Use, lockOver, lockOver), func(n int) bool { return n == 1 }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, storms := 0, 1
			if strings.Contains(name, "wrong") {
				storms = 20 // a busy machine may run one request after the other
			}
			for range storms {
				n = 0
				for _, res := range latchtest.Storm(tt.service(memstore.New()), 20, func(int) *http.Request { return userOrder() }) {
					if res.StatusCode == http.StatusCreated {
						n++
					}
				}
				if tt.orders(n) {
					break
				}
			}
			require.True(t, tt.orders(n), "%d orders", n)
		})
	}
}
