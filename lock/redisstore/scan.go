package redisstore

import (
	"cmp"
	"context"
	"iter"
	"slices"
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

// entries yields the entries on master whose names want accepts, which gets key "" if the name does not
// show it. Names that no entry has are skipped. Without whole, receipts may be cut. A foreign value is
// yielded as an error of class "value", with its Key. Any other error is the last.
//
// One round trip reads the beginning of many values: a few whole receipts can be larger than all other
// values. The entries do not keep the memory of its answer.
func (s *Store) entries(ctx context.Context, master *server, names []string, whole bool, want func(name, key string) bool) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for part := range slices.Chunk(names, loadCount) {
			glances := &wire.Command{Batch: true}
			var wanted, keys []string
			for _, name := range part {
				if key, ok := entry.KeyOf(s.prefix, name); ok && want(name, key) {
					wanted, keys = append(wanted, name), append(keys, key)
					glances.Then("eval", glanceScript.source, int64(1), name, int64(glanceBytes))
				}
			}
			if len(wanted) == 0 {
				continue
			}
			answer, err := master.Do(ctx, glances)
			if err != nil {
				yield(lock.Entry{}, unchanged(err))
				return
			}
			answers, _ := answer.([]any)
			for i, name := range wanted {
				e, err := s.glanced(ctx, name, answers[i], whole)
				switch {
				case endsListing(err):
					yield(lock.Entry{}, err)
					return
				case err == nil && e.State == lock.Free:
					continue
				}
				e.Key, e.Token, e.Owner = cmp.Or(keys[i], strings.Clone(e.Key)), strings.Clone(e.Token), strings.Clone(e.Owner)
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

// endsListing reports whether err is another error than that of one entry.
func endsListing(err error) bool { return err != nil && failure.ClassOf(err) != "value" }

// glanced returns the entry of an answer of glance.lua. It reads by itself an entry that has moved to
// another node of the Cluster, and a receipt that was cut.
func (s *Store) glanced(ctx context.Context, name string, answer any, whole bool) (lock.Entry, error) {
	refusal, _ := answer.(error)
	fields, _ := answer.([]any)
	switch code := failure.ReplyCode(refusal); {
	case answer == nil:
		return lock.Entry{}, nil
	case code == "MOVED", code == "ASK", whole && len(fields) == 3 && fields[2] == int64(1):
		return s.read(ctx, name)
	case refusal != nil:
		return lock.Entry{}, failure.NotApplied(failure.Kind(refusal), refusal)
	case len(fields) != 3:
		return lock.Entry{}, failure.BadAnswer(answer)
	}
	return entryOf(fields[:2])
}
