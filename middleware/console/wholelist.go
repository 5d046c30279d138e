package console

import (
	"cmp"
	"context"
	"slices"

	"github.com/httplatch/httplatch/lock"
)

// wholeList makes pages of a store that can only list. For each page it reads the whole
// list, and keeps no more than two pages of the lowest keys after the cursor.
type wholeList struct{ lock.Inspector }

// Page is part of [lock.Inspector]. A cursor is the last key of the page before.
func (w wholeList) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	for e, err := range w.List(ctx) {
		switch {
		case err != nil && e.Key == "":
			return nil, "", err
		case err != nil:
			e = lock.Entry{Key: e.Key}
		}
		if e.Key <= cursor || match != nil && !match(e.Key) {
			continue
		}
		if page = append(page, e); len(page) > 2*limit {
			page = lowest(page, limit+1)
		}
	}
	page = lowest(page, limit+1)
	if len(page) <= limit {
		return page, "", nil
	}
	return page[:limit], page[limit-1].Key, nil
}

func lowest(page []lock.Entry, n int) []lock.Entry {
	slices.SortFunc(page, func(x, y lock.Entry) int { return cmp.Compare(x.Key, y.Key) })
	return page[:min(n, len(page))]
}
