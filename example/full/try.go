package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// The guards that the page can put before an order.
const (
	guardNone       = "none"
	guardNaive      = "naive"
	guardLock       = "lock"
	guardIdempotent = "idempotent"
	guardBoth       = "both"
)

// guardChoice is a guard as the page offers it.
type guardChoice struct{ Name, Label, Hint string }

var guardChoices = []guardChoice{
	{guardNone, "No guard", "Every click is an order."},
	{guardNaive, "Naive lock", "A lock as it is often written, which ends after two minutes. It works until a packet is lost."},
	{guardLock, "Lock", "One order at a time per customer. The second click is refused."},
	{guardIdempotent, "Idempotent", "One order per form. The second click gets the first one's answer."},
	{guardBoth, "Both", "One order per form, and one at a time per customer."},
}

var (
	formUser  = keyfunc.Form("user")
	formOnce  = keyfunc.Form("once")
	formGuard = keyfunc.Form("guard")
)

// tryOrder is POST /try: an order from the page's form, behind the guard that
// the form names, over a store that loses a reply if the form says so.
func (d *desk) tryOrder() http.Handler {
	// A repeat waits for the first one's answer, since a user who sends a form twice
	// without JavaScript sees the second answer only.
	once := onlyWithReceipts
	if !d.cfg.quorum() {
		receipts := d.tries.With(lock.WithWait(maxWork + 5*time.Second))
		once = latch.Idempotent(receipts, formUser, formOnce, latch.WithFinal(placed))
	}
	onePerUser := latch.Lock(d.tries, "user", formUser, d.cfg.perUser()...)
	order := http.HandlerFunc(d.createFromForm)
	guards := map[string]http.Handler{
		guardNone:       order,
		guardNaive:      d.naive.guard(order),
		guardLock:       onePerUser(order),
		guardIdempotent: once(order),
		guardBoth:       once(onePerUser(order)),
	}
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, err := formGuard(r)
		guard, ok := guards[name]
		if err != nil || !ok {
			refuse(w, &refusal{http.StatusBadRequest, "The form does not name a guard."})
			return
		}
		user, err := formUser(r)
		if err != nil || checkUser(user) != nil {
			refuse(w, &refusal{http.StatusBadRequest, "A customer is 1 to 128 ASCII letters, digits and ._-@+&=/~|."})
			return
		}
		guard.ServeHTTP(w, r)
	})
	foreign := http.NewCrossOriginProtection()
	foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, &refusal{http.StatusForbidden, "The form was sent from another site."})
	}))
	return foreign.Handler(bodyFirst(d.answerForm(guarded)))
}

// createFromForm is createOrder for a form. It runs behind the guard.
func (d *desk) createFromForm(w http.ResponseWriter, r *http.Request) {
	quantity, err := strconv.Atoi(r.PostFormValue("quantity"))
	if err != nil {
		refuse(w, &refusal{http.StatusBadRequest, "The quantity must be an integer."})
		return
	}
	body, err := json.Marshal(orderRequest{r.PostFormValue("sku"), quantity})
	if err != nil {
		refuse(w, err)
		return
	}
	order := r.Clone(r.Context())
	order.Body = io.NopCloser(bytes.NewReader(body))
	order.Header.Set("X-User-ID", r.PostFormValue("user"))
	if work := r.PostFormValue("work"); work != "" {
		order.Header.Set("X-Work", work)
	}
	d.createOrder(w, order)
	if id, placed := strings.CutPrefix(w.Header().Get("Location"), "/orders/"); placed {
		d.bursts.note(r.Header.Get(burstHeader), id)
	}
}
