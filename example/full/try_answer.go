package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// formOutcome is the outcome of a form, for the page.
type formOutcome struct {
	Status   int     // 201, or the status of the refusal
	Order    *record // nil: refused
	Replayed bool
	Text     string // of the refusal
}

// answerForm runs next, which answers in JSON. The page's script gets the answer as it is.
// A browser without JavaScript gets a page. After an order it is redirected
// there, so that neither a reload nor the back button sends the form again.
// After a refusal the page has the form as it was, key included, so that
// sending it again is safe.
func (d *desk) answerForm(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		form, err := formOf(r)
		if err != nil {
			refuse(w, &refusal{http.StatusBadRequest, "The form cannot be read."})
			return
		}
		got := &heldAnswer{header: w.Header()}
		inner := r.Clone(r.Context())
		inner.Header.Set("Accept", "application/json") // the desk shows the answer on a page of its own
		next.ServeHTTP(got, inner)
		switch {
		case !strings.Contains(r.Header.Get("Accept"), "text/html"):
			w.WriteHeader(got.status)
			// A client that has gone away is the only cause of an error.
			_, _ = got.body.WriteTo(w)
		case got.status == http.StatusCreated:
			d.redirectToOrder(w, r, form, got)
		default:
			d.showRefusal(w, r, form, got)
		}
	})
}

// formOf reads the form in the body of r, and puts the body back.
func formOf(r *http.Request) (url.Values, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return url.ParseQuery(string(body))
}

func (d *desk) redirectToOrder(w http.ResponseWriter, r *http.Request, form url.Values, got *heldAnswer) {
	var placed order
	if err := json.Unmarshal(got.body.Bytes(), &placed); err != nil {
		refuse(w, err)
		return
	}
	query := url.Values{"order": {placed.ID}, "user": {placed.User}, "guard": {form.Get("guard")}}
	if w.Header().Get("Idempotent-Replayed") != "" {
		query.Set("replayed", "1")
	}
	w.Header().Del("Content-Type") // of the JSON
	http.Redirect(w, r, "/?"+query.Encode(), http.StatusSeeOther)
}

// outcomeOf reads the outcome that redirectToOrder has put into the query. It is nil if there is
// none.
func (d *desk) outcomeOf(ctx context.Context, query url.Values) *formOutcome {
	if query.Get("order") == "" {
		return nil
	}
	placed, err := d.orders.get(ctx, query.Get("order"))
	if err != nil || placed.User != query.Get("user") {
		return nil
	}
	return &formOutcome{Status: http.StatusCreated, Order: &placed, Replayed: query.Get("replayed") != ""}
}

func (d *desk) showRefusal(w http.ResponseWriter, r *http.Request, sent url.Values, got *heldAnswer) {
	var refused problem
	if err := json.Unmarshal(got.body.Bytes(), &refused); err != nil {
		refuse(w, err)
		return
	}
	p := d.cfg.newPage(sent)
	p.SKU, p.Quantity = sent.Get("sku"), sent.Get("quantity")
	p.Slow, p.Lose = sent.Has("work"), sent.Has("lose")
	if got.status != http.StatusUnprocessableEntity { // the key belongs to another form
		p.Once = cmp.Or(sent.Get("once"), p.Once)
	}
	p.Outcome = &formOutcome{Status: got.status, Text: cmp.Or(refused.Detail, refused.Title)}
	d.answerPage(w, r, got.status, p)
}

// heldAnswer is an answer that has not been sent.
type heldAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header is part of [http.ResponseWriter].
func (a *heldAnswer) Header() http.Header { return a.header }

// WriteHeader is part of [http.ResponseWriter].
func (a *heldAnswer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write is part of [http.ResponseWriter].
func (a *heldAnswer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}
