package main

import (
	"context"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// readyTimeout is how long the store may take to prove that it is there.
const readyTimeout = time.Second

type health struct {
	Status string `json:"status"`
}

// healthz is GET /healthz. It asks nobody else: a store that is down is no
// reason to restart this process.
func (d *desk) healthz(w http.ResponseWriter, _ *http.Request) {
	answerJSON(w, http.StatusOK, health{"alive"})
}

// readyz is GET /readyz: whether orders can be taken here.
func (d *desk) readyz(w http.ResponseWriter, r *http.Request) {
	if d.draining.Load() {
		refuse(w, &refusal{http.StatusServiceUnavailable, "The server is shutting down."})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if _, err := d.store.Get(ctx, lock.Key("readyz")); err != nil {
		refuse(w, &refusal{http.StatusServiceUnavailable, "The store does not answer."})
		return
	}
	answerJSON(w, http.StatusOK, health{"ready"})
}
