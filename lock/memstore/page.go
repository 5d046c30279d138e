package memstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/lock"
)

// Page is part of [lock.Inspector]. A cursor is a shard and the last key of it that was
// examined.
func (m *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	shard, after, err := placeOf(cursor)
	if err != nil {
		return nil, "", err
	}
	limit = max(limit, 1) // or no page would get further
	for ; shard < len(m.shards); shard++ {
		if err := ctx.Err(); err != nil {
			return nil, "", fmt.Errorf("memstore: page: %w", err)
		}
		for _, key := range m.shards[shard].keysAfter(after, limit) {
			if limit--; limit < 0 {
				return page, strconv.Itoa(shard) + ":" + after, nil
			}
			after = key
			if match != nil && !match(key) {
				continue
			}
			r, now := m.get(key)
			if r.settled {
				r.receipt = "" // or entry would copy it
			}
			if e := r.entry(now); e.State != lock.Free {
				page = append(page, e)
			}
		}
		after = ""
	}
	return page, "", nil
}

func placeOf(cursor string) (shard int, after string, err error) {
	if cursor == "" {
		return 0, "", nil
	}
	number, after, found := strings.Cut(cursor, ":")
	shard, err = strconv.Atoi(number)
	if !found || err != nil || shard < 0 || shard >= shardCount {
		return 0, "", errCursor
	}
	return shard, after, nil
}

// errCursor is the error of a Page with a cursor of unknown form.
var errCursor = fmt.Errorf("%w: the cursor is not one that Page returned", lock.ErrNotApplied)

// keysAfter returns the keys after the given one, in order, and more than limit if there are
// more. It copies and sorts at most twice as many under the lock.
func (s *shard) keysAfter(after string, limit int) []string {
	keys := s.someAfter(after, limit)
	slices.Sort(keys)
	return keys
}

// someAfter returns the same keys as keysAfter, but not sorted.
func (s *shard) someAfter(after string, limit int) (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(limit, len(s.records)) + 1
	last := "" // of the first n keys so far; "" before there are as many
	for key := range s.records {
		if key <= after || last != "" && key > last {
			continue
		}
		if keys = append(keys, key); len(keys) == 2*n {
			slices.Sort(keys)
			keys, last = keys[:n], keys[n-1]
		}
	}
	return keys
}
