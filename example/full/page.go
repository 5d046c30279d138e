package main

import (
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/httplatch/httplatch/example/internal/page"
)

// shownOrders is how many orders the page shows one by one.
const shownOrders = 24

// newPage returns an empty form, with the choices of the form before it.
func (c config) newPage(chosen url.Values) page.Data {
	p := page.New()
	p.Carts, p.Later, p.Metrics = true, c.acceptsOrders() == nil, true
	if c.quorum() {
		p.Ours = "lock" // it keeps no answers
	}
	if user := chosen.Get("user"); user != "" && checkUser(user) == nil {
		p.User = user
	}
	if guard := chosen.Get("guard"); slices.Contains([]string{"none", "naive", "lock", "idempotent"}, guard) {
		p.Guard = guard
	}
	return p
}

// showPage is GET /. A form that was sent without JavaScript leads back here,
// and gives the outcome in the query: a browser that reloads the page then asks
// for it, and does not send the form again.
func (d *desk) showPage(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	p := d.cfg.newPage(query)
	if outcome := d.outcomeOf(r.Context(), query); outcome != nil {
		p.Outcome = outcome
	}
	d.answerPage(w, r, http.StatusOK, p)
}

func (d *desk) answerPage(w http.ResponseWriter, r *http.Request, status int, p page.Data) {
	orders, err := d.orders.of(r.Context(), p.User)
	if err != nil {
		refuse(w, d.ordersError(err))
		return
	}
	slices.Reverse(orders)
	p.Count, p.Orders = len(orders), orders[:min(len(orders), shownOrders)]
	p.Lockout = int(d.stage.Lockout(r.Context(), p.User).Round(time.Second) / time.Second)
	p.Show(w, status)
}
