package redisstore

import (
	"context"
	"hash/maphash"
	"iter"

	"github.com/httplatch/httplatch/lock"
)

// scanCount is the number of names that the server looks at for one SCAN.
const scanCount = 256

// List yields every live entry once, in no order, with its Key. It walks the
// whole keyspace of every master, a few hundred names a round trip, and holds no
// more than one large receipt at a time. A foreign value under the name of an entry
// is yielded as an error with its Key, and the listing goes on. Any other error ends the listing.
// The end of ctx ends it at once.
func (s *Store) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		masters, err := s.nodes.masters(ctx)
		if err != nil {
			yield(lock.Entry{}, err)
			return
		}
		// SCAN may return a name twice. Hashes of the names seen take an eighth of the
		// memory of the names.
		seen, seed := make(map[uint64]struct{}), maphash.MakeSeed()
		first := func(name, _ string) bool {
			h := maphash.String(seed, name)
			_, known := seen[h]
			seen[h] = struct{}{}
			return !known
		}
		for _, master := range masters {
			cursor := "0"
			for more := true; more; more = cursor != "0" {
				var names []string
				if names, cursor, err = s.scan(ctx, master, cursor, scanCount); err != nil {
					yield(lock.Entry{}, err)
					return
				}
				for e, err := range s.entries(ctx, master, names, true, first) {
					if !yield(e, err) || endsListing(err) {
						return
					}
				}
			}
		}
	}
}
