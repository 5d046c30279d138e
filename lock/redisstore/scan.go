package redisstore

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
)

// scan returns the names of one SCAN, for which the server looks at count or so
// of all its names, and the cursor of the next one, "0" at the end.
func (s *Store) scan(ctx context.Context, master sender, cursor string, count int) (names []string, next string, err error) {
	pattern := globEscaper.Replace(s.prefix) + "*"
	answer, err := ask(ctx, master, "scan", cursor, "match", pattern, "count", count, "type", "string")
	if err != nil {
		return nil, "", err
	}
	fields, ok := answer.([]any)
	if !ok || len(fields) != 2 {
		return nil, "", badAnswer(answer)
	}
	found, ok := fields[1].([]any)
	if next, _ = fields[0].(string); !ok || next == "" {
		return nil, "", badAnswer(answer)
	}
	for _, n := range found {
		name, _ := n.(string)
		names = append(names, name)
	}
	return names, next, nil
}

var globEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// glanceBytes is more than everything before a receipt takes: the key is at most
// lock.MaxKeyBytes, and fingerprints and owners are short.
const glanceBytes = 8 << 10

// loaded is one entry, or with its key alone, why it cannot be read.
type loaded struct {
	entry lock.Entry
	err   error
}

// load reads the entries of those names that are an entry's and that want
// accepts; key is "" where it stands in the entry only. The values go through the
// store's client, which knows where a name has moved meanwhile. What was read
// before an error is returned with it.
//
// whole is whether receipts are read too, of which a few can be more than all
// the rest.
func (s *Store) load(ctx context.Context, names []string, whole bool, want func(name, key string) bool) ([]loaded, error) {
	type item struct {
		key string
		cmd *redis.Cmd
	}
	items := make([]item, 0, len(names))
	pipe := s.client.Pipeline()
	read := func(name string) *redis.Cmd { return pipe.Eval(ctx, readScript.String(), []string{name}) }
	if !whole {
		read = func(name string) *redis.Cmd {
			return pipe.Eval(ctx, glanceScript.String(), []string{name}, glanceBytes)
		}
	}
	for _, name := range names {
		key, _, ok := s.keyOf(name)
		if ok && want(name, key) {
			items = append(items, item{key, read(name)})
		}
	}
	if len(items) == 0 {
		return nil, nil
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	all := make([]loaded, 0, len(items))
	for _, it := range items {
		answer, err := it.cmd.Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return all, notApplied(kind(err), err)
		}
		e, err := listed(it.key, answer)
		if err == nil && e.State == lock.Free {
			continue
		}
		all = append(all, loaded{e, err})
	}
	return all, nil
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
