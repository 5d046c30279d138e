package redisstore

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// scan returns the names of one SCAN, for which the server looks at about count
// of its names, and the cursor of the next SCAN, "0" at the end.
func (s *Store) scan(ctx context.Context, master *server, cursor string, count int) (names []string, next string, err error) {
	pattern := globEscaper.Replace(s.prefix) + "*"
	answer, err := ask(ctx, master, "scan", cursor, "match", pattern, "count", int64(count), "type", "string")
	if err != nil {
		return nil, "", err
	}
	fields, ok := answer.([]any)
	if !ok || len(fields) != 2 {
		return nil, "", failure.BadAnswer(answer)
	}
	found, ok := fields[1].([]any)
	if next, _ = fields[0].(string); !ok || next == "" {
		return nil, "", failure.BadAnswer(answer)
	}
	for _, n := range found {
		name, _ := n.(string)
		names = append(names, name)
	}
	return names, next, nil
}

var globEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

const (
	// glanceBytes is longer than any entry without its receipt: the key is at
	// most keytext.MaxBytes, and fingerprints and owners are short.
	glanceBytes = 8 << 10

	// loadCount is the number of values that one round trip reads: half a megabyte at most.
	loadCount = 64
)

// loaded is one entry, or the error of reading it.
type loaded struct {
	entry lock.Entry
	err   error
	cut   bool   // the receipt is longer than the part in entry
	name  string // of the entry
	key   string // "" if the name does not show it, but the value does
}

// load reads the entries whose names want accepts. It skips names that no entry has. want gets
// key "" if the name does not show the key. An error comes with the entries that were read before
// it.
//
// It reads the beginning of a receipt: a few whole receipts can be larger than all other
// values.
func (s *Store) load(ctx context.Context, master *server, names []string, want func(name, key string) bool) ([]loaded, error) {
	items := make([]loaded, 0, len(names))
	var cmds *wire.Command
	for _, name := range names {
		key, ok := entry.KeyOf(s.prefix, name)
		if ok && want(name, key) {
			items = append(items, loaded{name: name, key: key})
			if glance := []any{"eval", glanceScript.source, int64(1), name, int64(glanceBytes)}; cmds == nil {
				cmds = wire.NewCommand("", glance...)
			} else {
				cmds.Then(glance...)
			}
		}
	}
	if len(items) == 0 {
		return nil, nil
	}
	answer, err := master.Do(ctx, cmds)
	answers, _ := answer.([]any)
	f, _ := errors.AsType[*failure.Error](err)
	switch {
	case len(items) == 1 && f != nil && failure.IsReply(f.Cause()):
		answers = []any{f.Cause()}
	case err != nil:
		return nil, unchanged(err)
	case len(items) == 1:
		answers = []any{answer}
	}
	all := items[:0]
	for i, it := range items {
		answer := answers[i]
		err, _ := answer.(error)
		switch code := failure.ReplyCode(err); {
		case answer == nil:
			continue
		case err == nil:
		case code == "MOVED", code == "ASK":
			there, ok, err := s.loadWhole(ctx, it)
			if err != nil {
				return all, err
			}
			if ok {
				all = append(all, there)
			}
			continue
		default:
			return all, failure.NotApplied(failure.Kind(err), err)
		}
		if fields, ok := answer.([]any); ok && len(fields) == 3 {
			answer, it.cut = fields[:2], fields[2] == int64(1)
		}
		it.entry, it.err = entryFrom(it.key, answer)
		if it.err == nil && it.entry.State == lock.Free {
			continue
		}
		all = append(all, it)
	}
	return all, nil
}

// loadWhole reads the whole of an entry that was cut, or that has moved to another node of the
// Cluster. ok is false if the entry is gone.
func (s *Store) loadWhole(ctx context.Context, of loaded) (l loaded, ok bool, err error) {
	answer, err := s.eval(ctx, &readScript, 1, of.name)
	if err != nil || answer == nil {
		return loaded{}, false, err
	}
	l.entry, l.err = entryFrom(of.key, answer)
	return l, l.err != nil || l.entry.State != lock.Free, nil //nolint:nilerr // l has it
}

// entryFrom returns the entry of key, which comes from the value if key is "". The entry does not
// keep the memory of the answer.
func entryFrom(key string, answer any) (lock.Entry, error) {
	e, err := entryOf(answer)
	e.Key, e.Token, e.Owner = cmp.Or(key, strings.Clone(e.Key)), strings.Clone(e.Token), strings.Clone(e.Owner)
	return e, err
}
