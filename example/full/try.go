package main

import (
	"net/http"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

var (
	formUser = keyfunc.Form("user")
	formOnce = keyfunc.Form("once")
)

// tryOrder is POST /try: an order from the page's form, behind the guard that
// the form names, over a store that loses a reply if the form says so.
func (d *desk) tryOrder() http.Handler {
	// A repeat waits for the first one's answer, since a user who sends a form twice
	// without JavaScript sees the second answer only.
	once := onlyWithReceipts
	if !d.cfg.quorum() {
		receipts := d.stage.Locker.With(lock.WithWait(maxWork + 5*time.Second))
		once = latch.Idempotent(receipts, formUser, formOnce, latch.WithFinal(placed))
	}
	onePerUser := latch.Lock(d.stage.Locker, "user", formUser, d.cfg.perUser()...)
	foreign := http.NewCrossOriginProtection()
	foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, &refusal{http.StatusForbidden, "The form was sent from another site."})
	}))
	return foreign.Handler(bodyFirst(d.answerForm(d.stage.Try(once, onePerUser, http.HandlerFunc(d.createOrder)))))
}

// showTry is GET /try: the state of the stage for a user.
func (d *desk) showTry(w http.ResponseWriter, r *http.Request) {
	user, err := userQuery(r)
	if err != nil || checkUser(user) != nil {
		refuse(w, &refusal{http.StatusBadRequest, "Say who, once: /try?user=U."})
		return
	}
	d.stage.State(w, r)
}
