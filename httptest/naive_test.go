package latchtest_test

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// naive is a guard by an author who forgets lost packets: one claim, whose
// failure counts as "not taken", and one release at the end. Its fields make it
// a little less naive, or more.
type naive struct {
	store lock.Store
	next  http.Handler

	claims   int           // how often it claims if there is an error
	onError  int           // the status if there still is
	patience time.Duration // between claims
	keep     bool          // it never releases
}

// naively returns a wiring of it.
func naively(change func(n *naive)) func(lock.Store) http.Handler {
	return func(s lock.Store) http.Handler {
		n := &naive{store: s, next: http.HandlerFunc(created), claims: 1, onError: http.StatusServiceUnavailable}
		change(n)
		return n
	}
}

func created(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"id":1}`)
}

func (n *naive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := lock.Key("user", r.Header.Get("X-User-ID"))
	token, e, err := n.claim(r.Context(), key)
	switch {
	case err != nil:
		w.WriteHeader(n.onError)
		return
	case e.Token != token:
		w.WriteHeader(http.StatusConflict)
		return
	}
	if !n.keep {
		defer func() { _, _ = n.store.Release(context.WithoutCancel(r.Context()), key, lock.Claim{Token: token}) }()
	}
	n.next.ServeHTTP(w, r)
}

func (n *naive) claim(ctx context.Context, key string) (token string, e lock.Entry, err error) {
	for range n.claims {
		token = rand.Text()
		e, err = n.store.Claim(ctx, key, lock.Claim{Token: token, Attempt: 1, Lease: 2 * time.Hour})
		if err == nil {
			return token, e, nil
		}
		wait := time.NewTimer(n.patience)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return token, e, ctx.Err()
		}
	}
	return token, e, err
}
