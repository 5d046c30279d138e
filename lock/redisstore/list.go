package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

const (
	// scanCount is the number of names that the server looks at for one SCAN.
	scanCount = 256

	// maxScan bounds how long one SCAN of a page keeps the server from its other clients.
	maxScan = 1000

	// glanceBytes is longer than any entry without its receipt: the key is at
	// most keytext.MaxBytes, and fingerprints and owners are short.
	glanceBytes = 8 << 10

	// loadCount is the number of values that one round trip reads: half a megabyte at most.
	loadCount = 64
)

// List yields every live entry once, in no order, with its Key. It walks the whole keyspace of every master, a few
// hundred names a round trip, and holds no more than one large receipt at a time. A foreign value under the name of
// an entry is yielded as an error with its Key, and the listing goes on. Any other error ends the listing. The end of
// ctx ends it at once.
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

// Page is part of [lock.Inspector]. It makes one SCAN, for which the server
// looks at about limit names, 1,000 at most, and reads the values of the matching entries.
// Its cost does not depend on the number of entries or of other keys, and a page may be
// empty. next names a master and its cursor. If masters change between two pages, entries may
// be missed. It returns when ctx ends, whatever the client and the server do.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	master, at, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	masters, err := s.nodes.masters(ctx)
	if err != nil {
		return nil, "", err
	}
	if master >= len(masters) {
		return nil, "", nil // the last page had more masters
	}
	names, at, err := s.scan(ctx, masters[master], at, min(max(limit, 1), maxScan))
	if err != nil {
		return nil, "", err
	}
	wanted := func(_, key string) bool { return key == "" || match == nil || match(key) }
	for e, err := range s.entries(ctx, masters[master], names, false, wanted) {
		switch {
		case endsListing(err):
			return nil, "", err
		case e.Key != "" && wanted("", e.Key):
			e.Receipt = nil // it may be cut
			page = append(page, e)
		}
	}
	if at == "0" {
		master++
	}
	if master == len(masters) {
		return page, "", nil
	}
	return page, strconv.Itoa(master) + ":" + at, nil
}

// parseCursor parses a cursor of Page.
func parseCursor(cursor string) (master int, at string, err error) {
	if cursor == "" {
		return 0, "0", nil
	}
	number, at, found := strings.Cut(cursor, ":")
	master, err = strconv.Atoi(number)
	_, notANumber := strconv.ParseUint(at, 10, 64)
	if !found || err != nil || master < 0 || notANumber != nil {
		return 0, "", fmt.Errorf("%w: redisstore: the cursor is not one that Page returned", lock.ErrNotApplied)
	}
	return master, at, nil
}

// scan returns the names of one SCAN, for which the server looks at about count
// of its names, and the cursor of the next SCAN, "0" at the end.
func (s *Store) scan(ctx context.Context, master *server, cursor string, count int) (names []string, next string, err error) {
	pattern := globEscaper.Replace(s.prefix) + "*"
	answer, err := ask(ctx, master, "scan", cursor, "match", pattern, "count", int64(count), "type", "string")
	if err != nil {
		return nil, "", err
	}
	var found []any
	if fields, _ := answer.([]any); len(fields) == 2 {
		next, _ = fields[0].(string)
		found, _ = fields[1].([]any)
	}
	if next == "" || found == nil {
		return nil, "", failure.BadAnswer(answer)
	}
	for _, n := range found {
		name, _ := n.(string)
		names = append(names, name)
	}
	return names, next, nil
}

var globEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

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

// endsListing reports whether err concerns more than one entry.
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
