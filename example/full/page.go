package main

import (
	"bytes"
	"crypto/rand"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// pageForm has the fields of the form.
type pageForm struct {
	Once     string // the one-time key, the same each time that this form is sent
	User     string
	SKU      string
	Quantity string
	Guard    string
	Slow     bool // work=2s
	Lose     bool // lose=1
}

// pageData is the data of page.html.
type pageData struct {
	Ours    string // the guard that the page shows as httplatch
	Later   bool   // the desk accepts orders for a worker
	Form    pageForm
	Guards  []guardChoice
	Outcome *formOutcome // of the form that led here; nil: none did
	Lockout int          // for how many seconds the naive lock keeps the user out
	Count   int          // of the user's orders
	Orders  []record     // the newest of them, newest first
}

// pageScene is a part of a story, and where it is shown.
type pageScene struct{ ID, Guard, Title string }

// shownOrders is how many orders the page shows one by one.
const shownOrders = 24

// newPageForm returns an empty form, with the choices of the form before it.
func newPageForm(chosen url.Values) pageForm {
	f := pageForm{Once: rand.Text(), User: chosen.Get("user"), SKU: "tea", Quantity: "1", Guard: chosen.Get("guard"), Slow: true}
	if checkUser(f.User) != nil || f.User == "" {
		f.User = "42"
	}
	if !slices.ContainsFunc(guardChoices, func(g guardChoice) bool { return g.Name == f.Guard }) {
		f.Guard = guardBoth
	}
	return f
}

// showPage is GET /. A form that was sent without JavaScript leads back here,
// and gives the outcome in the query: a browser that reloads the page then asks
// for it, and does not send the form again.
func (d *desk) showPage(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	d.answerPage(w, r, http.StatusOK, newPageForm(query), d.outcomeOf(r.Context(), query))
}

func (d *desk) answerPage(w http.ResponseWriter, r *http.Request, status int, form pageForm, outcome *formOutcome) {
	orders, err := d.orders.of(r.Context(), form.User)
	if err != nil {
		refuse(w, d.ordersError(err))
		return
	}
	slices.Reverse(orders)
	ours := guardBoth
	if d.cfg.quorum() {
		ours = guardLock // it keeps no answers
	}
	data := pageData{
		Ours:    ours,
		Later:   d.cfg.acceptsOrders() == nil,
		Form:    form,
		Guards:  guardChoices,
		Outcome: outcome,
		Lockout: int(d.naiveLockout(r.Context(), form.User).Round(time.Second) / time.Second),
		Count:   len(orders),
		Orders:  orders[:min(len(orders), shownOrders)],
	}
	var body bytes.Buffer
	if err := orderPage.Execute(&body, data); err != nil {
		refuse(w, err)
		return
	}
	// Not no-store: the back button should show the form that was sent, with its
	// one-time key, and not a new form.
	w.Header().Set("Cache-Control", "private, no-cache")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	w.WriteHeader(status)
	// A client that has gone away is the only cause of an error.
	_, _ = body.WriteTo(w)
}
