package rowstore

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"

	"github.com/httplatch/httplatch/lock"
)

// Read reads up to limit rows after a key, in the order of their keys, with or without receipts. It
// may read more if several have the last key. The first living row of a key is its entry.
type Read func(ctx context.Context, after []byte, limit int, receipts bool) ([]*Row, error)

// atOnce is the number of rows that List reads in one statement.
const atOnce = 500

// List yields the live entries. It reads in steps, so that no statement is long.
func List(ctx context.Context, read Read) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for after, more := []byte{}, true; more; {
			var live []lock.Entry
			var err error
			if live, after, more, err = read.page(ctx, after, atOnce, true); err != nil {
				yield(lock.Entry{}, err)
				return
			}
			for _, e := range live {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// Page returns a page of [lock.Inspector] of a store, by the name of its package. The cursor is a key.
func Page(ctx context.Context, store, cursor string, limit int, match func(key string) bool, read Read) (page []lock.Entry, next string, err error) {
	after, err := hex.DecodeString(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %s: a cursor that is not of this store", lock.ErrNotApplied, store)
	}
	live, last, more, err := read.page(ctx, after, max(limit, 1), false)
	if err != nil {
		return nil, "", err
	}
	for _, e := range live {
		if match == nil || match(e.Key) {
			page = append(page, e)
		}
	}
	if more {
		next = hex.EncodeToString(last)
	}
	return page, next, nil
}

// page returns the live entries of the rows that it reads, the last key, and whether there may be more.
func (read Read) page(ctx context.Context, after []byte, limit int, receipts bool) (live []lock.Entry, last []byte, more bool, err error) {
	rows, err := read(ctx, after, limit, receipts)
	for _, r := range rows {
		last = r.Key
		if known := len(live) > 0 && live[len(live)-1].Key == string(r.Key); !known && r.State() != lock.Free {
			live = append(live, r.Entry())
		}
	}
	return live, last, len(rows) >= limit, err
}
