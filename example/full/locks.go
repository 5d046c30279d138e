package main

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/lock"
)

// maxLocks is how many entries /locks shows.
const maxLocks = 1000

// heldLock is an entry of the store as a script of an operator sees it.
type heldLock struct {
	Key     string `json:"key"`
	State   string `json:"state"` // held, abandoned, settled (a cool-down), or unreadable
	Token   string `json:"token"`
	Owner   string `json:"owner"`
	LeaseMS int64  `json:"lease_ms"` // left of the lease, or of what follows it
}

var errNoInspector = &refusal{http.StatusNotImplemented, "This store cannot be inspected."}

var errStoreDown = &refusal{http.StatusServiceUnavailable, "The store does not answer."}

// listLocks is GET /locks, for scripts. People get the console.
func (d *desk) listLocks(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Redirect(w, r, "/console", http.StatusSeeOther)
		return
	}
	inspector, ok := d.store.(lock.Inspector)
	if !ok {
		refuse(w, errNoInspector)
		return
	}
	locks := []heldLock{}
	for e, err := range inspector.List(r.Context()) {
		if e.State == lock.Settled && len(e.Fingerprint) > 0 {
			continue // a receipt, which keeps no request waiting
		}
		state := e.State.String()
		if err != nil {
			if e.Key == "" {
				refuse(w, errStoreDown)
				return
			}
			state = "unreadable" // something else was written under the name of a lock
		}
		locks = append(locks, heldLock{e.Key, state, e.Token, e.Owner, e.Left.Milliseconds()})
		if len(locks) == maxLocks {
			break
		}
	}
	slices.SortFunc(locks, func(a, b heldLock) int { return cmp.Compare(a.Key, b.Key) })
	answerJSON(w, http.StatusOK, locks)
}

// freeLock is DELETE /locks?key=K&token=T. With the token, only the entry that
// the operator saw is removed, and never its successor.
func (d *desk) freeLock(w http.ResponseWriter, r *http.Request) {
	inspector, ok := d.store.(lock.Inspector)
	if !ok {
		refuse(w, errNoInspector)
		return
	}
	key, token := r.URL.Query().Get("key"), r.URL.Query().Get("token")
	if key == "" || token == "" {
		refuse(w, &refusal{http.StatusBadRequest, "Say which lock: /locks?key=K&token=T, both from GET /locks."})
		return
	}
	freed, err := inspector.Forget(r.Context(), key, token)
	switch {
	case err != nil:
		refuse(w, errStoreDown)
	case freed:
		w.WriteHeader(http.StatusNoContent)
	default:
		refuse(w, whyNotFreed(r.Context(), inspector, key))
	}
}

// whyNotFreed distinguishes an entry that is gone from one with another token.
func whyNotFreed(ctx context.Context, inspector lock.Inspector, key string) error {
	for e, err := range inspector.List(ctx) {
		if e.Key == key {
			return &refusal{http.StatusConflict, "The lock has another token by now."}
		}
		if err != nil && e.Key == "" {
			return errStoreDown
		}
	}
	return &refusal{http.StatusNotFound, "There is no such lock."}
}
