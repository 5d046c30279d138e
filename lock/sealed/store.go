// Package sealed encrypts the receipts of a store. Anyone with access to the server, its backups
// or its replicas can then neither read nor exchange the receipts of [lock.Locker.Once] and
// middleware.Idempotent, such as the answers of an API. All processes that share a store must
// seal. The recommended AEAD is AES-256-GCM:
//
//	block, err := aes.NewCipher(key) // 32 random bytes, from your secret manager
//	...
//	current, err := cipher.NewGCMWithRandomNonce(block)
//	locker := lock.New(sealed.New(store, current))
//
// Another AEAD has to be safe for concurrent use, and to accept random nonces, or to make its
// own and have a NonceSize of 0. A receipt grows by 4 bytes, a nonce and the AEAD's overhead:
// by 32 bytes with AES-GCM. Empty receipts and cool-downs are sealed too, or one of them could
// replace an answer.
//
// # Protection, and its limits
//
// A receipt can be opened only under the key and the token with which it was settled. A
// receipt that was altered, cut, written without the AEAD, or moved to another entry is
// refused. So is a receipt from before sealing was introduced, until its keep is over, and an
// empty one that the store leaves in place of a receipt too long for its server. The work then
// does not run: the Locker returns an error with advice that matches [lock.ErrNotApplied] and
// errors.ErrUnsupported. The middleware answers 503, even with WithFailOpen, since the store did
// answer. List yields such an entry without its receipt, so that an operator can Forget it.
//
// The description of a request that package middleware adds for operators, with its label
// ([middleware.WithLabel]), method and path, is sealed as well. If it does not open, operators
// see only the process.
//
// The rest of an entry is not sealed: key, state, process, times, the length of the receipt,
// and the fingerprint, which Settle does not get. A writer to the store can still remove an
// entry, after which the work runs again, restore an older one of the same key, and give the
// receipt of a key to a request other than the first.
//
// # Rotation
//
// To change the AEAD, deploy three times:
//
//  1. sealed.New(store, old, next): all processes can open with the next one.
//  2. sealed.New(store, next, old): the next one seals.
//  3. sealed.New(store, next), after the longest keep has passed since the second.
//
// An AEAD with random nonces of 96 bits, such as AES-GCM, must not seal more than 2^32 times
// under one key. It seals once for each receipt, including repeated settles and cool-downs, and
// once for each claim of Idempotent and Dedupe, including repeats. At 1,000 requests a second,
// change the key every three weeks.
package sealed

import (
	"bytes"
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/lock"
)

// New returns store with its receipts encrypted. current seals, and previous ones only open. It
// panics if store or an AEAD is nil, if store keeps no receipts, as a quorum, and if current
// has nonces of less than 12 bytes: random ones would repeat.
func New(store lock.Store, current cipher.AEAD, previous ...cipher.AEAD) *Store {
	if store == nil {
		panic("sealed: nil Store")
	}
	if err := lock.Describe(store).NoReceipts; err != nil {
		panic("sealed: there is nothing to seal: " + err.Error())
	}
	return &Store{below: store, seals: newSeals(current, previous)}
}

// Store seals the receipts of another store. It passes on the interfaces of the other store for a
// Locker and for operators. The caller closes the other store.
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

// Renew is part of [lock.Store].
func (s *Store) Renew(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	return s.below.Renew(ctx, key, incomparable(c))
}

// Settle is part of [lock.Store].
func (s *Store) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (ok bool, err error) {
	return s.below.Settle(ctx, key, incomparable(c), s.seals.seal(receipt, key, c.Token), keep)
}

// Release is part of [lock.Store].
func (s *Store) Release(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	return s.below.Release(ctx, key, incomparable(c))
}

// incomparable returns c without its attempt if its owner was sealed: a store that computes the stored value from c would
// compare another value in vain.
func incomparable(c lock.Claim) lock.Claim {
	if _, sealed := requestinfo.Split(c.Owner); sealed != "" {
		c.Attempt = 0
	}
	return c
}

// Amend is part of [lock.Amender], if the store below is one. Every seal of a receipt is
// different, so Amend reads the receipt first, and replaces exactly the bytes that it has read.
func (s *Store) Amend(ctx context.Context, key, token string, from, to []byte) (ok bool, err error) {
	amender, is := s.below.(lock.Amender)
	if !is {
		return false, lock.Describe(s.below).NoAmends
	}
	e, err := s.below.Get(ctx, key)
	if err != nil || e.State != lock.Settled || e.Token != token {
		return false, notAmended(err)
	}
	there, err := s.seals.open(e.Receipt, key, token)
	switch {
	case err != nil:
		return false, err
	case bytes.Equal(there, to):
		return true, nil
	case !bytes.Equal(there, from):
		return false, nil
	}
	return amender.Amend(ctx, key, token, e.Receipt, s.seals.seal(to, key, token))
}

// notAmended returns the error of a read before an amend. This call has amended nothing, but an
// earlier call may have been applied.
func notAmended(err error) error {
	if err == nil || errors.Is(err, lock.ErrNotApplied) {
		return err
	}
	return fmt.Errorf("%w: sealed: the receipt to replace was not read: %w", lock.ErrNotApplied, err)
}

// ClaimSet is part of [lock.SetClaimer], if the store below is one.
func (s *Store) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (inTheWay lock.Entry, err error) {
	sets, is := s.below.(lock.SetClaimer)
	if !is {
		return lock.Entry{}, errNoSets
	}
	sealed := slices.Clone(claims)
	for i := range sealed {
		sealed[i].Owner = s.seals.sealOwner(sealed[i].Owner, keys[i], sealed[i].Token)
	}
	e, err := sets.ClaimSet(ctx, keys, sealed)
	if err == nil && e.State == lock.Free {
		return lock.Entry{}, nil
	}
	return s.opened(e.Key, e, err)
}

var errNoSets = fmt.Errorf("sealed: the store below claims no sets at once: %w", errors.ErrUnsupported)

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
		// A claim of a settled key certainly changes nothing.
		return lock.Entry{}, err
	}
	return e, nil
}

// Describe is part of [lock.Describer].
func (s *Store) Describe() lock.Description { return lock.Describe(s.below) }

// List is part of [lock.Inspector]. It yields an entry whose receipt does not open without the
// receipt, and without an error, so that an operator can find and remove it.
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

// Page is part of [lock.Inspector], if the store below is one.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	if inspector, ok := s.below.(lock.Inspector); ok {
		page, next, err = inspector.Page(ctx, cursor, limit, match)
		for i := range page {
			page[i].Owner = s.seals.openOwner(page[i].Owner, page[i].Key, page[i].Token)
		}
		return page, next, err
	}
	return nil, "", errNoInspector
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

// transaction seals its receipt.
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
