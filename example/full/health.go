package main

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// readyTimeout bounds how long the store may take to answer a probe.
const readyTimeout = time.Second

type health struct {
	Status string `json:"status"`
}

// healthz is GET /healthz. It asks no other service: a store that is down is no
// reason to restart this process.
func (d *desk) healthz(w http.ResponseWriter, _ *http.Request) {
	answerJSON(w, http.StatusOK, health{"alive"})
}

// readyz is GET /readyz: whether orders can be taken here. It names the class of the failure,
// as the log and the metrics do. The store's own error is for operators: it is in the log, once
// for each class.
func (d *desk) readyz(w http.ResponseWriter, r *http.Request) {
	if d.draining.Load() {
		refuse(w, &refusal{http.StatusServiceUnavailable, "The server is shutting down."})
		return
	}
	err := d.tryLock(r.Context())
	class := lock.Class(err)
	if d.unready.Swap(class) != class && err != nil {
		d.logger.Error("not ready: the store takes no locks", "class", class, "error", err)
	}
	if err != nil {
		refuse(w, &refusal{http.StatusServiceUnavailable, "The store takes no locks: " + class + "."})
		return
	}
	answerJSON(w, http.StatusOK, health{"ready"})
}

// tryLock takes and frees a key that nothing else has. Reading is not enough: a
// store that is full, is a replica or lacks permissions still answers a read.
func (d *desk) tryLock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	token := rand.Text()
	key := lock.Key("readyz", token)
	if _, err := d.store.Claim(ctx, key, lock.Claim{Token: token, Attempt: 1, Lease: readyTimeout}); err != nil {
		return err
	}
	_, err := d.store.Release(ctx, key, lock.Claim{Token: token})
	return err
}
