package rowstore

import (
	"encoding/hex"
	"fmt"
	"iter"

	"github.com/httplatch/httplatch/lock"
)

// Read reads up to limit rows after a key, in the order of their keys. It returns their live
// entries, the key of the last row, and whether there may be more.
type Read func(after []byte, limit int) (live []lock.Entry, last []byte, more bool, err error)

// atOnce is the number of rows that List reads in one statement.
const atOnce = 500

// List yields the live entries. It reads in steps, so that no statement is long.
func List(read Read) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for after, more := []byte{}, true; more; {
			var live []lock.Entry
			var err error
			if live, after, more, err = read(after, atOnce); err != nil {
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
func Page(store, cursor string, limit int, match func(key string) bool, read Read) (page []lock.Entry, next string, err error) {
	after, err := hex.DecodeString(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %s: a cursor that is not of this store", lock.ErrNotApplied, store)
	}
	live, last, more, err := read(after, max(limit, 1))
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
