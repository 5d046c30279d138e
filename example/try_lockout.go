package main

import (
	"context"
	"net/http"
	"time"
)

// showLockout is GET /try: for how long the naive lock keeps a user out, and
// of how long that is what is left.
func (d *desk) showLockout(w http.ResponseWriter, r *http.Request) {
	user, err := userQuery(r)
	if err == nil {
		err = checkUser(user)
	}
	if err != nil {
		refuse(w, &refusal{http.StatusBadRequest, "Say who, once: /try?user=U."})
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	answerJSON(w, http.StatusOK, struct {
		LeftMS int64 `json:"left_ms"`
		OfMS   int64 `json:"of_ms"`
	}{d.naiveLockout(r.Context(), user).Milliseconds(), naiveExpiry.Milliseconds()})
}

// naiveLockout is 0 if the user is not locked out, or if the store does not
// tell: the page is shown all the same.
func (d *desk) naiveLockout(ctx context.Context, user string) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	e, err := d.store.Get(ctx, naiveKey(user))
	if err != nil {
		return 0
	}
	return e.Left
}
