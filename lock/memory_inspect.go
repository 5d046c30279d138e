package lock

import (
	"context"
	"fmt"
	"iter"
)

// List is part of [Inspector]. It holds no lock while it yields.
func (m *memory) List(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for i := range m.shards {
			if err := ctx.Err(); err != nil {
				yield(Entry{}, fmt.Errorf("lock: list: %w", err))
				return
			}
			for _, key := range m.shards[i].keys() {
				r, now := m.get(key)
				if e := r.entry(now); e.State != Free && !yield(e, nil) {
					return
				}
			}
		}
	}
}

// Forget is part of [Inspector].
func (m *memory) Forget(ctx context.Context, key, token string) (ok bool, err error) {
	return m.remove(ctx, key, token, true)
}
