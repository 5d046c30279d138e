package main

import (
	"context"
	"net/http"
	"time"
)

// showTry is GET /try: for how long the naive lock still keeps a user out, and for how long in
// all; with burst=B also the orders that this burst of clicks has placed.
func (d *desk) showTry(w http.ResponseWriter, r *http.Request) {
	user, err := userQuery(r)
	if err == nil {
		err = checkUser(user)
	}
	if err != nil {
		refuse(w, &refusal{http.StatusBadRequest, "Say who, once: /try?user=U."})
		return
	}
	var placed []string
	if burst := r.URL.Query().Get("burst"); burst != "" {
		placed = d.bursts.of(burst)
	}
	w.Header().Set("Cache-Control", "no-store")
	answerJSON(w, http.StatusOK, struct {
		LeftMS int64    `json:"left_ms"`
		OfMS   int64    `json:"of_ms"`
		Placed []string `json:"placed,omitempty"`
	}{d.naiveLockout(r.Context(), user).Milliseconds(), naiveExpiry.Milliseconds(), placed})
}

// naiveLockout returns how long the naive lock keeps the user out. It is 0 if it does not, if an
// order of this desk holds the lock, and if the store does not answer: the page is shown all the
// same.
func (d *desk) naiveLockout(ctx context.Context, user string) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	e, err := d.store.Get(ctx, naiveKey(user))
	if err != nil || d.naive.isRunning(e.Token) {
		return 0
	}
	return e.Left
}
