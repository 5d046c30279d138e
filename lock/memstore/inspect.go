package memstore

import (
	"context"
	"fmt"
	"iter"

	"github.com/httplatch/httplatch/lock"
)

// List is part of [lock.Inspector]. It holds no lock while it yields.
func (m *Store) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for i := range m.shards {
			if err := ctx.Err(); err != nil {
				yield(lock.Entry{}, fmt.Errorf("memstore: list: %w", err))
				return
			}
			for _, key := range m.shards[i].keys() {
				r, now := m.get(key)
				if e := r.entry(now); e.State != lock.Free && !yield(e, nil) {
					return
				}
			}
		}
	}
}

// Forget is part of [lock.Inspector].
func (m *Store) Forget(ctx context.Context, key, token string) (ok bool, err error) {
	return m.remove(ctx, key, token, true)
}
