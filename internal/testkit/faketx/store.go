// Package faketx is a [lock.Transactor] in memory, for tests: a small database with a
// table of claims, a table of effects, and transactions that commit the rows of both in
// one step. A test chooses the faults of the steps of a transaction ([Store.Next], [Store.Every]),
// and breaks the database on purpose ([Store.Break]) to show that a check can fail.
//
// It has the parts of a database that matter to a commit without an answer: receipt and COMMIT
// arrive together, or late, or never, and they find no claim after Outcome has taken the claim
// away.
package faketx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Store is a client of the database. It is safe for concurrent use.
type Store struct {
	*database

	steps steps
}

// database has the rows.
type database struct {
	mu        sync.Mutex
	entries   map[string]*entry
	effects   []string
	committed func(row string) // called with each committed row; may be nil
	open      int              // transactions that have not ended
	trusting  bool             // see Trust
}

// steps counts the steps of a client, and holds their faults.
type steps struct {
	mu    sync.Mutex
	next  map[Step][]Fault
	every map[Step]Fault
	count map[Step]int
}

// entry is the row of a key. It stays when its lease is over, because its token may still settle
// it.
type entry struct {
	lock.Entry

	lease  time.Time
	linger time.Duration
	keep   time.Time
}

// New returns a client of an empty database.
func New() *Store {
	return (&Store{database: &database{entries: make(map[string]*entry)}}).Client()
}

// Client returns another client of the same database, whose steps have no faults yet.
func (s *Store) Client() *Store {
	return &Store{database: s.database, steps: steps{
		next: make(map[Step][]Fault), every: make(map[Step]Fault), count: make(map[Step]int),
	}}
}

// Committed makes the Store call tell with each row that is committed. tell must not call the
// Store.
func (s *Store) Committed(tell func(row string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = tell
}

// Describe is part of [lock.Describer].
func (*Store) Describe() lock.Description {
	return lock.Description{MaxLag: 5 * time.Second, NoFences: errFences}
}

var errFences = fmt.Errorf("%w: faketx has no fences: %w", lock.ErrNotApplied, errors.ErrUnsupported)

// Effects returns the committed rows, in the order of their commits.
func (s *Store) Effects() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.effects)
}

// Open returns the number of transactions that have not ended.
func (s *Store) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// state returns the state of the entry as callers see it.
func (e *entry) state() lock.State {
	now := time.Now()
	switch {
	case e == nil:
		return lock.Free
	case e.State == lock.Settled && now.Before(e.keep):
		return lock.Settled
	case e.State == lock.Settled:
		return lock.Free
	case now.Before(e.lease):
		return lock.Held
	case now.Before(e.lease.Add(e.linger)):
		return lock.Abandoned
	}
	return lock.Free
}

// seen returns e as callers see it.
func (e *entry) seen() lock.Entry {
	state := e.state()
	if state == lock.Free {
		return lock.Entry{}
	}
	seen := e.Entry
	seen.State = state
	seen.Fingerprint, seen.Receipt = bytes.Clone(seen.Fingerprint), bytes.Clone(seen.Receipt)
	switch state {
	case lock.Settled:
		seen.Left = time.Until(e.keep)
	case lock.Held:
		seen.Left = time.Until(e.lease)
	case lock.Free, lock.Abandoned:
		seen.Left = time.Until(e.lease.Add(e.linger))
	}
	return seen
}

// write calls do to change the row of key. do gets nil if there is no row.
func (s *Store) write(ctx context.Context, key string, do func(e *entry) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", lock.ErrNotApplied, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return do(s.entries[key])
}

// Claim is part of [lock.Store].
func (s *Store) Claim(ctx context.Context, key string, c lock.Claim) (seen lock.Entry, err error) {
	if c.Fenced {
		return lock.Entry{}, errFences
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint)
	return meet(ctx, s, Claim, func(ctx context.Context) (seen lock.Entry, err error) {
		err = s.write(ctx, key, func(e *entry) error {
			state := e.state()
			yields := state == lock.Abandoned || state == lock.Held && c.ReplacesHeld
			if state == lock.Free && c.Replaces == "" || yields && c.Replaces == e.Token {
				e = &entry{
					Entry: lock.Entry{
						State: lock.Held, Token: c.Token, Attempt: c.Attempt, Fingerprint: c.Fingerprint, Owner: c.Owner,
					},
					lease: time.Now().Add(c.Lease), linger: c.Linger,
				}
				s.entries[key] = e
			}
			seen = e.seen()
			return nil
		})
		return seen, err
	})
}

// ours changes the entry of token, if it is a claim and not a receipt.
func (s *Store) ours(ctx context.Context, step Step, key, token string, do func(e *entry)) (ok bool, err error) {
	return meet(ctx, s, step, func(ctx context.Context) (ok bool, err error) {
		err = s.write(ctx, key, func(e *entry) error {
			state := e.state()
			if ok = (state == lock.Held || state == lock.Abandoned) && e.Token == token; ok {
				do(e)
			}
			return nil
		})
		return ok, err
	})
}

// Renew is part of [lock.Store].
func (s *Store) Renew(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	return s.ours(ctx, Renew, key, c.Token, func(e *entry) {
		if lease := time.Now().Add(c.Lease); lease.After(e.lease) {
			e.lease = lease
		}
		e.linger = max(e.linger, c.Linger)
	})
}

// Settle is part of [lock.Store].
func (s *Store) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (ok bool, err error) {
	receipt = bytes.Clone(receipt)
	settled := false
	ok, err = s.ours(ctx, Settle, key, c.Token, func(e *entry) { e.settle(receipt, keep) })
	if err == nil && !ok {
		s.mu.Lock()
		e := s.entries[key]
		settled = e.state() == lock.Settled && e.Token == c.Token
		s.mu.Unlock()
	}
	return ok || settled, err
}

func (e *entry) settle(receipt []byte, keep time.Duration) {
	e.State, e.Receipt, e.keep = lock.Settled, receipt, time.Now().Add(keep)
}

// Release is part of [lock.Store].
func (s *Store) Release(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	return s.ours(ctx, Release, key, c.Token, func(*entry) { delete(s.entries, key) })
}

// Get is part of [lock.Store]. It waits for no transaction, and sees committed rows only.
func (s *Store) Get(ctx context.Context, key string) (seen lock.Entry, err error) {
	return meet(ctx, s, Get, func(ctx context.Context) (lock.Entry, error) {
		if err := ctx.Err(); err != nil {
			return lock.Entry{}, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.entries[key].seen(), nil
	})
}
