package rowstore

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// DefaultTable is the name of a table in the texts of Schema.
const DefaultTable = "latch_entries"

// Option is an option of a store. The only one is a TableName.
type Option interface{ apply(table *string) }

// TableName names the table.
type TableName string

func (n TableName) apply(table *string) { *table = string(n) }

// Table returns the name of the table of a store, by the name of its package.
func Table[O Option](store string, opts []O) string {
	table := DefaultTable
	for _, o := range opts {
		if Option(o) == nil {
			panic(store + ": nil Option")
		}
		o.apply(&table)
	}
	return table
}

// Opened makes the tables of a store, and checks them. It returns the store, closed after an error.
func Opened[S interface {
	Migrate(ctx context.Context) error
	Check(ctx context.Context) error
	Close()
}](ctx context.Context, s S) (opened S, err error) {
	if err = s.Migrate(ctx); err == nil {
		err = s.Check(ctx)
	}
	if err != nil {
		s.Close()
		return opened, err
	}
	return s, nil
}

// The clean-up of rows that have ended.
const (
	SweepEvery = 64               // number of claims of a process between two sweeps
	SweepAfter = 10 * time.Minute // for which an ended row stays: work may settle its claim after the lease

	sweepRows = 2 * SweepEvery // at most, which is more than can have ended since the last sweep
	sweepTime = 5 * time.Second

	// sweepAllEvery is the interval at which a sweep begins at the first row, to find rows that an
	// earlier sweep has missed: a row that was locked, or that was committed after its end.
	sweepAllEvery = time.Minute
)

// Sweeps counts claims, which remove ended rows in the background, a few at a time. Its
// methods are safe for concurrent use.
type Sweeps struct {
	claims atomic.Int64
	runs   atomic.Bool

	mu    sync.Mutex
	from  int64     // where a sweep begins, on the server's clock, in microseconds since 1970
	again time.Time // when to begin at the first row again
}

// From returns the moment at which a sweep begins: up to it, this process has removed ended rows. Earlier
// entries of the index belong to removed rows, but are expensive to skip as long as a transaction has
// an old snapshot.
func (s *Sweeps) From() (micros int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.After(s.again) {
		s.from, s.again = 0, now.Add(sweepAllEvery)
	}
	return s.from
}

// UpTo notes the moment up to which a sweep has removed rows. A server may round this moment.
func (s *Sweeps) UpTo(micros int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from = max(s.from, micros-1000)
}

// Claim counts a claim of one or more keys. If a sweep is due and none runs, it calls sweep on its
// own goroutine, to remove up to limit rows from a moment on. The next sweep finds the remaining rows.
func (s *Sweeps) Claim(ctx context.Context, keys int, sweep func(ctx context.Context, limit int, from int64) (removed int, err error)) {
	claims := s.claims.Add(int64(keys))
	if claims/SweepEvery == (claims-int64(keys))/SweepEvery || !s.runs.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.runs.Store(false)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
		defer cancel()
		_, _ = sweep(ctx, sweepRows, s.From())
	}()
}

// Read reads up to limit rows after a key, in the order of their keys, with or without receipts. It
// may read more if several have the last key. The first living row of a key is its entry.
type Read func(ctx context.Context, after []byte, limit int, receipts bool) ([]*Row, error)

// List yields the live entries. It reads 500 rows at once, so that no statement is long.
func List(ctx context.Context, read Read) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for after, more := []byte{}, true; more; {
			var live []lock.Entry
			var err error
			if live, after, more, err = read.page(ctx, after, 500, true); err != nil {
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
