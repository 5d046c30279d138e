package lock

import "context"

// MarkLost is the first half of the loss of the lease of a run: its key is not
// given up yet.
func MarkLost(ctx context.Context) { _, _ = runOf(ctx).lease.markLost(errTaken) }
