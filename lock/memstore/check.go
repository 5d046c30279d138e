package memstore

import (
	"context"
	"fmt"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

func checkKey(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", lock.ErrNotApplied, err)
	}
	if n := len(key); n < 1 || n > keytext.MaxBytes {
		return fmt.Errorf("%w: key of %d bytes, want 1 to %d", lock.ErrNotApplied, n, keytext.MaxBytes)
	}
	return nil
}

func checkCall(ctx context.Context, key, token string) error {
	if err := checkKey(ctx, key); err != nil {
		return err
	}
	if n := len(token); n < 1 || n > maxTokenBytes {
		return fmt.Errorf("%w: token of %d bytes, want 1 to %d", lock.ErrNotApplied, n, maxTokenBytes)
	}
	return nil
}

func checkClaim(ctx context.Context, key string, c *lock.Claim) error {
	if err := checkCall(ctx, key, c.Token); err != nil {
		return err
	}
	if c.Lease <= 0 || c.Linger < 0 {
		return fmt.Errorf("%w: lease of %v with a linger of %v", lock.ErrNotApplied, c.Lease, c.Linger)
	}
	return nil
}
