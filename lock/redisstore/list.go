package redisstore

import (
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
)

// scanCount is how many names the server looks at for one SCAN.
const scanCount = 256

// List yields every live entry once, in no order, with its Key. It walks the
// whole keyspace of every master, a few hundred names a round trip. What bears
// the name of an entry and is none is yielded as an error with its Key, and the
// listing goes on; any other error ends it.
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

// masters is every master of a cluster, or just the client.
func (s *Store) masters(ctx context.Context) ([]sender, error) {
	if s.cluster == nil {
		return []sender{s.client}, nil
	}
	var mu sync.Mutex
	var all []sender
	err := s.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, master)
		return nil
	})
	if err != nil {
		return nil, notApplied(kind(err), err)
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
	pattern := globEscaper.Replace(l.store.prefix) + "*"
	for cursor := "0"; ; {
		answer, err := ask(ctx, master, "scan", cursor, "match", pattern, "count", scanCount, "type", "string")
		if err != nil {
			return l.fail(err)
		}
		page, ok := answer.([]any)
		if !ok || len(page) != 2 {
			return l.fail(badAnswer(answer))
		}
		names, ok := page[1].([]any)
		if cursor, _ = page[0].(string); !ok || cursor == "" {
			return l.fail(badAnswer(answer))
		}
		if !l.page(ctx, names) {
			return false
		}
		if cursor == "0" {
			return true
		}
	}
}

var globEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

func (l *listing) fail(err error) bool {
	l.yield(lock.Entry{}, err)
	return false
}

// page yields the entries of one SCAN. Their values go through the store's
// client, which knows where a name has moved meanwhile.
func (l *listing) page(ctx context.Context, names []any) bool {
	type item struct {
		key string
		cmd *redis.Cmd
	}
	items := make([]item, 0, len(names))
	pipe := l.store.client.Pipeline()
	for _, n := range names {
		name, _ := n.(string)
		key, _, ok := l.store.keyOf(name)
		if !ok || !l.first(name) {
			continue
		}
		items = append(items, item{key, pipe.Eval(ctx, string(readScript.source), []string{name})})
	}
	if len(items) == 0 {
		return true
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, it := range items {
		answer, err := it.cmd.Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return l.fail(notApplied(kind(err), err))
		}
		e, err := listed(it.key, answer)
		if err == nil && e.State == lock.Free {
			continue
		}
		if !l.yield(e, err) {
			return false
		}
	}
	return true
}

func (l *listing) first(name string) bool {
	h := maphash.String(l.seed, name)
	_, known := l.seen[h]
	l.seen[h] = struct{}{}
	return !known
}

// listed is the entry of key, which is "" if the entry itself has it.
func listed(key string, answer any) (lock.Entry, error) {
	v, left, err := valueOf(answer)
	if err != nil {
		return lock.Entry{Key: key}, err
	}
	e := v.entry(left)
	if e.Key = key; key == "" {
		e.Key = v.key
	}
	return e, nil
}
