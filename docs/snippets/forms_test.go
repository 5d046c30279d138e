package snippets_test

import (
	"context"
	"crypto/rand"
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

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var orderForm = template.Must(template.New("form").Parse(`<!doctype html>
<title>Order</title>
<form method="post" action="/orders">
<input type="hidden" name="once" value="{{.}}">
<label>Article <input name="sku" required></label>
<button>Order</button>
</form>
`))

func showForm(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err := orderForm.Execute(w, rand.Text()); err != nil {
		slog.Error("showing the form", "error", err)
	}
}

func formRoutes(locker *lock.Locker) http.Handler {
	mux := http.NewServeMux()

	once := latch.Idempotent(
		locker.With(lock.WithWait(10*time.Second)),
		keyfunc.Context(auth.UserID), keyfunc.Form("once"),
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

func showProblem(w http.ResponseWriter, _ *http.Request, p *latch.Problem) {
	message := "Your order could not be taken. Please try again."
	switch p.Status {
	case http.StatusConflict:
		message = "Your order is still being processed. Please look at your orders in a moment."
	case http.StatusUnprocessableEntity:
		message = "This form was sent before. Please look at your orders."
	}
	http.Error(w, message, p.Status)
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

// TestForm is the table of the page.
func TestForm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := formRoutes(newLocker(t, memstore.New()))
		shown := func() (key string) {
			page := ask(h, "GET", "/orders/new", "")
			require.Equal(t, 200, page.Code)
			require.Equal(t, "no-store", page.Header().Get("Cache-Control"))
			m := regexp.MustCompile(`name="once" value="([^"]+)"`).FindStringSubmatch(page.Body.String())
			require.NotNil(t, m)
			return m[1]
		}
		submit := func(ctx context.Context, key, sku string) *httptest.ResponseRecorder {
			form := url.Values{"once": {key}, "sku": {sku}}
			r := httptest.NewRequestWithContext(ctx, "POST", "/orders", strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.SetBasicAuth("42", "")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}

		key := shown()
		ctx, giveUp := context.WithCancel(t.Context())
		go submit(ctx, key, "tea")
		synctest.Wait()
		giveUp() // as a browser does at the second click
		first := submit(t.Context(), key, "tea")
		require.Equal(t, 303, first.Code)
		require.Equal(t, "true", first.Header().Get("Idempotent-Replayed"))
		order := first.Header().Get("Location")
		require.EqualValues(t, 1, placed.Load(), "a double click")

		require.Equal(t, order, submit(t.Context(), key, "tea").Header().Get("Location"), "the old page again")
		changed := submit(t.Context(), key, "coffee")
		require.Equal(t, 422, changed.Code)
		require.Contains(t, changed.Body.String(), "sent before")
		require.NotEqual(t, order, submit(t.Context(), shown(), "tea").Header().Get("Location"), "a new page")

		key = shown()
		require.Equal(t, 422, submit(t.Context(), key, "").Code)
		require.Equal(t, 303, submit(t.Context(), key, "tea").Code, "a mistake corrected, with the same key")
		require.EqualValues(t, 3, placed.Load())
	})
}
