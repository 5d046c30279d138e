package lock

import "context"

// Disbelieve is the first half of the loss of the lease of a run: its key is not
// given up yet.
func Disbelieve(ctx context.Context) { _, _ = runOf(ctx).lease.disbelieve(errTaken) }
