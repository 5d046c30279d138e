package lock

import (
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/local"
)

// holder is a lease as the local table sees it: a local.Holder. It gives the lease no methods.
type holder Lease

type (
	entrance = local.Entrance[*holder]
	waiter   = local.Waiter[*holder]
)

// When implements clock.Scheduled.
func (h *holder) When() *clock.Schedule { return &h.local.Schedule }

// Entry implements local.Holder.
func (h *holder) Entry() *local.Entry[*holder] { return &h.local }

// Key implements local.Holder.
func (h *holder) Key() string { return string(h.entry) }

// Owner implements local.Holder.
func (h *holder) Owner() string { return (*Lease)(h).owner() }

// SameRequest implements local.Holder.
func (h *holder) SameRequest(other *holder) bool {
	return sameRequest((*Lease)(h).fingerprint(), (*Lease)(other).fingerprint())
}

// Settles implements local.Holder.
func (h *holder) Settles() bool { return h.end.settles }

// Ring implements local.Holder.
func (h *holder) Ring() { (*Lease)(h).ring() }
