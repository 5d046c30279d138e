package lock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Page is the optional part of [Inspector]. A cursor is a shard and the last
// key of it that was looked at.
func (m *memory) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []Entry, next string, err error) {
	shard, after, err := memoryPlace(cursor)
	if err != nil {
		return nil, "", err
	}
	for ; shard < len(m.shards); shard++ {
		if err := ctx.Err(); err != nil {
			return nil, "", fmt.Errorf("lock: page: %w", err)
		}
		for _, key := range m.shards[shard].keysAfter(after) {
			if limit--; limit < 0 {
				return page, strconv.Itoa(shard) + ":" + after, nil
			}
			after = key
			if match != nil && !match(key) {
				continue
			}
			r, now := m.get(key)
			if r.settled {
				r.receipt = "" // it would be copied
			}
			if e := r.entry(now); e.State != Free {
				page = append(page, e)
			}
		}
		after = ""
	}
	return page, "", nil
}

func memoryPlace(cursor string) (shard int, after string, err error) {
	if cursor == "" {
		return 0, "", nil
	}
	number, after, found := strings.Cut(cursor, ":")
	shard, err = strconv.Atoi(number)
	if !found || err != nil || shard < 0 || shard >= memoryShards {
		return 0, "", errCursor
	}
	return shard, after, nil
}

// errCursor: see [Inspector].
var errCursor = fmt.Errorf("%w: the cursor is not one that Page returned", ErrNotApplied)

// keysAfter returns the keys that come after the given one, in order.
func (s *memoryShard) keysAfter(after string) []string {
	keys := slices.DeleteFunc(s.keys(), func(k string) bool { return k <= after })
	slices.Sort(keys)
	return keys
}
