// Package sealed encrypts the receipts of a store, so that what [lock.Locker.Once] and
// middleware.Idempotent remember, such as the answers of an API, cannot be read or
// exchanged by who can read or write the server, its backups or its replicas. All
// processes that share a store must seal. The recommended AEAD is AES-256-GCM:
//
//	block, err := aes.NewCipher(key) // 32 random bytes, from your secret manager
//	...
//	current, err := cipher.NewGCMWithRandomNonce(block)
//	locker := lock.New(sealed.New(store, current))
//
// Any other will do that is safe for concurrent use and whose nonces may be
// random, or which makes its own and has a NonceSize of 0. A receipt takes 4
// bytes, a nonce and the AEAD's overhead more than before, 32 bytes in all with
// AES-GCM. Empty receipts and cool-downs are sealed too, or one of them could
// take the place of an answer.
//
// # What is bound, and what is not
//
// A receipt can be opened only under the key and the token that it was settled
// with. One that was altered, cut, left by a writer without the AEAD, or moved
// to another entry is refused, and so is one that was left before sealing was
// introduced, until its keep is over. The work is then not run: the Locker
// returns an error that says what to do and matches [lock.ErrNotApplied] and
// errors.ErrUnsupported, which the middleware answers with 503, WithFailOpen or
// not, since the store did answer. List yields such an entry without its
// receipt, so that an operator can Forget it.
//
// What package middleware has a record say of its request for operators, whose it is
// ([middleware.WithLabel]), method and path, is sealed as well. Where it does not open,
// operators see the process alone.
//
// The rest of an entry stays as it was: key, state, process, times, the length of
// the receipt, and the fingerprint, which Settle does not get. A writer to
// the store can still remove an entry, after which the work runs again, bring
// back an older one of the same key, and let another request than the first
// have the receipt of its key.
//
// # Rotation
//
// To change the AEAD, deploy three times:
//
//  1. sealed.New(store, old, next): all processes learn to open what comes.
//  2. sealed.New(store, next, old): the new one seals.
//  3. sealed.New(store, next), when the longest keep has passed since the second.
//
// An AEAD with random nonces of 96 bits, such as AES-GCM, must not seal more
// than 2^32 times under one key: for each receipt, repeated settles and cool-downs
// included, and for each claim of Idempotent and Dedupe, those of repeats included. At
// 1,000 requests a second, change it every three weeks.
package sealed

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// New returns store with its receipts encrypted. current seals; previous ones open what
// they have sealed. It panics if store or an AEAD is nil, if store keeps no receipts, as a
// quorum does, and if current has nonces of less than 12 bytes: random ones would repeat.
func New(store lock.Store, current cipher.AEAD, previous ...cipher.AEAD) *Store {
	if store == nil {
		panic("sealed: nil Store")
	}
	if err := lock.Describe(store).NoReceipts; err != nil {
		panic("sealed: there is nothing to seal: " + err.Error())
	}
	return &Store{below: store, seals: newSeals(current, previous)}
}

// Store seals what goes into another, and opens what comes out of it. It hands on what
// that can do for a Locker and for operators; Close is called on that store itself.
type Store struct {
	below
	seals seals
}

type below = lock.Store

// Claim is part of [lock.Store].
func (s *Store) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	c.Owner = s.seals.sealOwner(c.Owner, key, c.Token)
	e, err := s.below.Claim(ctx, key, c)
	return s.opened(key, e, err)
}

// Settle is part of [lock.Store].
func (s *Store) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (ok bool, err error) {
	return s.below.Settle(ctx, key, c, s.seals.seal(receipt, key, c.Token), keep)
}

// Get is part of [lock.Store].
func (s *Store) Get(ctx context.Context, key string) (lock.Entry, error) {
	e, err := s.below.Get(ctx, key)
	return s.opened(key, e, err)
}

func (s *Store) opened(key string, e lock.Entry, err error) (lock.Entry, error) {
	if err != nil {
		return e, err
	}
	e.Owner = s.seals.openOwner(e.Owner, key, e.Token)
	if e.State != lock.Settled {
		return e, nil
	}
	e.Receipt, err = s.seals.open(e.Receipt, key, e.Token)
	if err != nil {
		// A claim of a settled key changes nothing, so this is certain.
		return lock.Entry{}, err
	}
	return e, nil
}

// Describe is that of the store below.
func (s *Store) Describe() lock.Description { return lock.Describe(s.below) }

// Check checks the store below, if it is a [lock.Checker].
func (s *Store) Check(ctx context.Context) error {
	if checker, ok := s.below.(lock.Checker); ok {
		return checker.Check(ctx)
	}
	return nil
}

// Watch is that of the store below.
func (s *Store) Watch(key string) (wake <-chan struct{}, stop func()) {
	if below, ok := s.below.(lock.Watcher); ok {
		return below.Watch(key)
	}
	return nil, func() {}
}

// List is part of [lock.Inspector]. What is to be removed because nothing opens its
// receipt has to be seen first, so it is yielded without one, and is no error.
func (s *Store) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		inspector, ok := s.below.(lock.Inspector)
		if !ok {
			yield(lock.Entry{}, errNoInspector)
			return
		}
		for e, err := range inspector.List(ctx) {
			e.Owner = s.seals.openOwner(e.Owner, e.Key, e.Token)
			if err == nil && e.State == lock.Settled {
				e.Receipt, _ = s.seals.open(e.Receipt, e.Key, e.Token)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Page is part of [lock.Pager], if the store below is one.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	if pager, ok := s.below.(lock.Pager); ok {
		page, next, err = pager.Page(ctx, cursor, limit, match)
		for i := range page {
			page[i].Owner = s.seals.openOwner(page[i].Owner, page[i].Key, page[i].Token)
		}
		return page, next, err
	}
	return nil, "", fmt.Errorf("sealed: the store lists no pages: %w", errors.ErrUnsupported)
}

// Forget is part of [lock.Inspector], if the store below is one.
func (s *Store) Forget(ctx context.Context, key, token string) (ok bool, err error) {
	if inspector, ok := s.below.(lock.Inspector); ok {
		return inspector.Forget(ctx, key, token)
	}
	return false, errNoInspector
}

// Begin is part of [lock.Transactor], if the store below is one. The receipt that is
// committed with the work is sealed like any other.
func (s *Store) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	below, ok := s.below.(lock.Transactor)
	if !ok {
		return nil, nil, lock.Describe(s.below).NoTransactions
	}
	work, tx, err := below.Begin(ctx, key, token)
	if err != nil {
		return nil, nil, err
	}
	return work, &transaction{Transaction: tx, seals: s.seals, key: key, token: token}, nil
}

// transaction seals what it settles.
type transaction struct {
	lock.Transaction

	seals      seals
	key, token string
}

// Settle is part of [lock.Transaction].
func (t *transaction) Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	return t.Transaction.Settle(ctx, t.seals.seal(receipt, t.key, t.token), keep)
}

var errNoInspector = fmt.Errorf("sealed: the store is no Inspector: %w", errors.ErrUnsupported)
