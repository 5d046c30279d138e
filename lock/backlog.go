package lock

import (
	"slices"
	"sync/atomic"

	"github.com/httplatch/httplatch/lock/internal/bounded"
)

// maxPendingBytes bounds the memory of the receipts that wait for the store: 64 of the
// longest answers that package middleware keeps by default, or more than a minute of 1,000
// answers a second with 1 KiB each. An outage may last longer, and must not end the process.
const maxPendingBytes = 64 << 20

// backlog counts the bytes of the receipts that wait for the store.
type backlog struct{ bytes atomic.Int64 }

// keep counts the memory of a receipt whose end will be repeated. If copies is set, it copies the
// receipt, which still belongs to the caller. Above the bound it drops the receipt, and an empty
// one is settled in its place: the answer was delivered, and repeats of the request learn only that
// the work was done.
func (b *backlog) keep(n *leaseEnd, copies bool) (dropped int) {
	size := len(n.receipt)
	switch {
	case size == 0:
	case !bounded.Add(&b.bytes, int64(size), maxPendingBytes):
		b.drop(n)
		return size
	default:
		n.pending = true
		if copies {
			n.receipt = slices.Clone(n.receipt)
		}
	}
	return 0
}

// drop forgets the receipt of an end, which then settles an empty receipt.
func (b *backlog) drop(n *leaseEnd) {
	b.uncount(n)
	n.receipt = nil
}

func (b *backlog) uncount(n *leaseEnd) {
	if n.pending {
		n.pending = false
		b.bytes.Add(-int64(len(n.receipt)))
	}
}
