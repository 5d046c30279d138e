package console

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// health is the class of the failure that a check of the store has found, "" for none.
type health string

// Refuses reports whether the store refuses the calls of guards. Other findings of its check concern
// calls to come.
func (c health) Refuses() bool {
	switch c {
	case "", "EVICTION", "VERSION", "SETS":
		return false
	}
	return true
}

// check checks the store for a page: an operator who looks during an outage, or after the repair, cannot
// wait for the next check of the Locker. A check that did not get through leaves the result of that.
func (h *handler) check(ctx context.Context) health {
	check := lock.Describe(h.store).Check
	if check == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := check(ctx)
	if err == nil {
		return ""
	}
	switch class := lock.Class(err); class {
	case "dial", "silent", "connection", "handshake", "cancelled":
		return health(h.locker.Stats().Trouble)
	default:
		return health(class)
	}
}
