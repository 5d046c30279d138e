package snippets_test

import (
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/form"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var orderForm = template.Must(template.New("form").Parse(`<!doctype html>
<title>Order</title>
<form method="post" action="/orders">{{.}}
<label>Article <input name="sku" required></label>
<button>Order</button>
</form>
`))

func showForm(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err := orderForm.Execute(w, form.Field()); err != nil {
		slog.Error("showing the form", "error", err)
	}
}

func formRoutes(locker *lock.Locker) http.Handler {
	mux := http.NewServeMux()

	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.Form("once"),
		latch.WithFinal(func(status int) bool { return status < 400 }),
		latch.WithErrorHandler(showProblem),
	)

	mux.Handle("GET /orders/new", auth.Require(http.HandlerFunc(showForm)))
	mux.Handle("POST /orders", auth.Require(once(http.HandlerFunc(takeOrder))))
	return mux
}

func takeOrder(w http.ResponseWriter, r *http.Request) {
	id, err := placeOrder(r.Context(), r.PostFormValue("sku"))
	if err != nil {
		http.Error(w, "Please choose an article.", http.StatusUnprocessableEntity)
		return
	}
	http.Redirect(w, r, "/orders/"+id, http.StatusSeeOther)
}

var messages = map[latch.ProblemKind]string{
	latch.ProblemInProgress:          "We are working on your order. It counts once, however often you click.",
	latch.ProblemHeld:                "Another of your orders is still being processed.",
	latch.ProblemCoolingDown:         "You ordered a moment ago. Look at your orders before you order again.",
	latch.ProblemKeyReused:           "This form was sent before, with another article. Look at your orders.",
	latch.ProblemOutcomeUnknown:      "We do not know whether your order was taken. Look at your orders.",
	latch.ProblemResultNotReplayable: "Your order was taken. Look at your orders.",
	latch.ProblemFirstFailed:         "Your order was not taken. Please send it again.",
	latch.ProblemUnavailable:         "Your order was not taken. Please send it again in a moment.",
	latch.ProblemShuttingDown:        "Your order was not taken. Please send it again in a moment.",
}

func showProblem(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
	page, ok := p.Page(r)
	if !ok {
		p.ServeHTTP(w, r) // JSON, for clients that prefer it
		return
	}
	if message, ok := messages[page.Kind]; ok {
		page.Title, page.Text = "Your order", []string{message}
	}
	page.ServeHTTP(w, r)
}

// placed numbers the orders of placeOrder, which takes a second for each.
var placed atomic.Int64

func placeOrder(_ context.Context, sku string) (id string, err error) {
	if sku == "" {
		return "", errors.New("no article")
	}
	time.Sleep(time.Second)
	return strconv.FormatInt(placed.Add(1), 10), nil
}

func submit(ctx context.Context, h http.Handler, fields string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, "POST", "/orders", strings.NewReader(fields))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "text/html,*/*;q=0.8")
	r.SetBasicAuth("42", "")
	return guardtest.Serve(h, r)
}

func TestForm(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		h := formRoutes(newLocker(t, memstore.New()))
		before := placed.Load()
		shown := func() (key string) {
			page := ask(h, "GET", "/orders/new", "")
			require.Equal(t, 200, page.Code)
			require.Equal(t, "no-store", page.Header().Get("Cache-Control"))
			m := regexp.MustCompile(`name="once" value="([^"]+)"`).FindStringSubmatch(page.Body.String())
			require.NotNil(t, m)
			return m[1]
		}
		submit := func(ctx context.Context, key, sku string) *httptest.ResponseRecorder {
			return submit(ctx, h, url.Values{"once": {key}, "sku": {sku}}.Encode())
		}

		key := shown()
		ctx, giveUp := context.WithCancel(t.Context())
		go submit(ctx, key, "tea")
		synctest.Wait()
		giveUp() // as a browser does at the second click
		first := submit(t.Context(), key, "tea")
		require.Equal(t, 303, first.Code)
		require.True(t, replayed(first))
		order := first.Header().Get("Location")
		require.EqualValues(t, 1, placed.Load()-before, "a double click")

		require.Equal(t, order, submit(t.Context(), key, "tea").Header().Get("Location"), "the old page again")
		changed := submit(t.Context(), key, "coffee")
		require.Equal(t, 422, changed.Code)
		require.Contains(t, changed.Body.String(), "sent before")
		require.NotEqual(t, order, submit(t.Context(), shown(), "tea").Header().Get("Location"), "a new page")

		key = shown()
		require.Equal(t, 422, submit(t.Context(), key, "").Code)
		require.Equal(t, 303, submit(t.Context(), key, "tea").Code, "a mistake corrected, with the same key")
		require.EqualValues(t, 3, placed.Load()-before)
	})
}

// TestFormsThatCannotChange: a double click on a form without a key, and its flash message.
func TestFormsThatCannotChange(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		locker := newLocker(t, memstore.New())
		once := latch.Dedupe(locker, keyfunc.Context(auth.UserID), 10*time.Second)
		var orders atomic.Int64
		h := auth.Require(once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			id := strconv.FormatInt(orders.Add(1), 10)
			http.SetCookie(w, &http.Cookie{Name: "flash", Value: "thanks"})
			http.Redirect(w, r, "/orders/"+id+"?placed=1", http.StatusSeeOther)
		})))
		ctx, giveUp := context.WithCancel(t.Context())
		go submit(ctx, h, "sku=tea")
		synctest.Wait()
		giveUp()
		second := submit(t.Context(), h, "sku=tea")
		require.Equal(t, "/orders/1?placed=1", second.Header().Get("Location"))
		require.Empty(t, second.Header().Get("Set-Cookie"), "the flash message is lost, and the query is not")
		require.EqualValues(t, 1, orders.Load())
		time.Sleep(11 * time.Second)
		require.Equal(t, "/orders/2?placed=1", submit(t.Context(), h, "sku=tea").Header().Get("Location"), "after the window it is another one")
	})
}

// TestSecondClickBehindLock: what the first request's context is when its client has gone.
func TestSecondClickBehindLock(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		locker := newLocker(t, memstore.New())
		onePerUser := latch.Lock(locker.With(lock.WithDetached()), "user", keyfunc.Context(auth.UserID))
		for guard, goesOn := range map[string]bool{"plain": false, "detached": true} {
			use := onePerUser
			if guard == "plain" {
				use = latch.Lock(locker, "user", keyfunc.Context(auth.UserID))
			}
			work := make(chan error, 1)
			h := auth.Require(use(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Second)
				work <- r.Context().Err()
			})))
			ctx, giveUp := context.WithCancel(t.Context())
			go submit(ctx, h, "sku=tea")
			synctest.Wait()
			giveUp()
			require.Equal(t, 409, submit(t.Context(), h, "sku=tea").Code, guard)
			require.Equal(t, goesOn, <-work == nil, guard)
			synctest.Wait()
		}
	})
}
