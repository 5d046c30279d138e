package redisstore

import (
	"context"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
)

// scanCount is how many names the server looks at for one SCAN.
const scanCount = 256

// List yields every live entry once, in no order, with its Key. It walks the
// whole keyspace of every master, a few hundred names a round trip, and holds no
// more than one large receipt at a time. What bears the name of an entry and is
// none is yielded as an error with its Key, and the listing goes on; any other
// error ends it, and so does the end of ctx, at once.
func (s *Store) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		masters, err := s.masters(ctx)
		if err != nil {
			yield(lock.Entry{}, err)
			return
		}
		l := listing{store: s, yield: yield, seen: make(map[uint64]struct{}), seed: maphash.MakeSeed()}
		for _, master := range masters {
			if !l.node(ctx, master) {
				return
			}
		}
	}
}

// masters is every master of a cluster, always in the same order, or just the
// client.
func (s *Store) masters(ctx context.Context) ([]sender, error) {
	if s.cluster == nil {
		return []sender{s.client}, nil
	}
	found, err := apart(ctx, func() (found []*redis.Client, err error) {
		var mu sync.Mutex
		err = s.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			if !s.opened {
				bind(master)
			}
			found = append(found, master)
			return nil
		})
		if err != nil {
			return nil, notApplied(kind(err), err)
		}
		return found, nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	all := make([]sender, len(found))
	for i, master := range found {
		all[i] = master
	}
	return all, nil
}

// listing is one run of List.
type listing struct {
	store *Store
	yield func(lock.Entry, error) bool

	// SCAN may return a name twice. Hashes of the names seen take an eighth of
	// the memory of the names.
	seen map[uint64]struct{}
	seed maphash.Seed
}

// node yields the entries of one master. It is false if the listing is over.
func (l *listing) node(ctx context.Context, master sender) bool {
	for cursor := "0"; ; {
		names, next, err := l.store.scan(ctx, master, cursor, scanCount)
		if err != nil {
			return l.fail(err)
		}
		for part := range slices.Chunk(names, loadCount) {
			if !l.part(ctx, part) {
				return false
			}
		}
		if next == "0" {
			return true
		}
		cursor = next
	}
}

// part yields the entries of some names.
func (l *listing) part(ctx context.Context, names []string) bool {
	found, err := l.store.load(ctx, names, func(name, _ string) bool { return l.first(name) })
	for _, f := range found {
		if f.cut {
			whole, there, err := l.store.whole(ctx, f)
			if err != nil {
				return l.fail(err)
			}
			if !there {
				continue
			}
			f = whole
		}
		if !l.yield(f.entry, f.err) {
			return false
		}
	}
	return err == nil || l.fail(err)
}

func (l *listing) fail(err error) bool {
	l.yield(lock.Entry{}, err)
	return false
}

func (l *listing) first(name string) bool {
	h := maphash.String(l.seed, name)
	_, known := l.seen[h]
	l.seen[h] = struct{}{}
	return !known
}
