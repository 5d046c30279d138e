package main

import (
	"context"
	"crypto/rand"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// naiveExpiry has to be longer than the slowest order, because nothing renews
// it. In the incident it was two hours.
const naiveExpiry = 2 * time.Minute

func naiveKey(user string) string { return lock.Key("naive", user) }

// naiveLock is the lock of the incident that the README describes, here to be
// compared with [latch.Lock], and never to be copied. It is right as long as
// every reply arrives.
type naiveLock struct {
	store   lock.Store
	timeout time.Duration
	running sync.Map // the tokens of requests under way: they are not locked out
}

func (l *naiveLock) isRunning(token string) bool {
	_, ok := l.running.Load(token)
	return ok
}

func (l *naiveLock) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := formUser(r)
		if err != nil {
			refuse(w, err)
			return
		}
		key, token := naiveKey(user), rand.Text()
		l.running.Store(token, nil)
		defer l.running.Delete(token)
		ctx, cancel := context.WithTimeout(r.Context(), l.timeout)
		defer cancel()
		found, err := l.store.Claim(ctx, key, lock.Claim{Token: token, Attempt: 1, Lease: naiveExpiry})
		if err != nil {
			// The mistake: no answer is read as "not taken". So the key is not
			// looked up again, and is not released if it was taken.
			refuse(w, &refusal{http.StatusServiceUnavailable, "The lock could not be taken. Please try again."})
			return
		}
		if found.Token != token {
			if now, err := l.store.Get(r.Context(), key); err == nil && now.Left > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(int((now.Left+time.Second-1)/time.Second)))
			}
			refuse(w, &refusal{http.StatusConflict, "Your order is already being processed."})
			return
		}
		defer func() { _, _ = l.store.Release(context.WithoutCancel(r.Context()), key, lock.Claim{Token: token}) }()
		next.ServeHTTP(w, r)
	})
}
