package lock

import (
	"context"
	"crypto/cipher"
	"iter"
	"time"
)

// NewSealed returns store with its receipts encrypted, so that what
// [Locker.Once] and middleware.Idempotent remember, such as the answers of an
// API, cannot be read or exchanged by who can read or write the server, its
// backups or its replicas. It is an [Inspector] if store is one; what else
// store has, such as Close and Check, is called on store itself. All processes
// that share a store must seal.
//
// current seals. The recommended AEAD is AES-256-GCM:
//
//	block, err := aes.NewCipher(key) // 32 random bytes, from your secret manager
//	...
//	current, err := cipher.NewGCMWithRandomNonce(block)
//
// Any other will do that is safe for concurrent use and whose nonces may be
// random, or which makes its own and has a NonceSize of 0. A receipt takes 4
// bytes, a nonce and the AEAD's overhead more than before, 32 bytes in all with
// AES-GCM. Empty receipts and cool-downs are sealed too, or one of them could
// take the place of an answer.
//
// NewSealed panics if store or an AEAD is nil, if store keeps no receipts (see
// [NewQuorum]), and if current has nonces of less than 12 bytes: random ones would
// repeat.
//
// # What is bound, and what is not
//
// A receipt can be opened only under the key and the token that it was settled
// with. One that was altered, cut, left by a writer without the AEAD, or moved
// to another entry is refused, and so is one that was left before sealing was
// introduced, until its keep is over. The work is then not run: the Locker
// returns an error that says what to do and matches [ErrNotApplied] and
// errors.ErrUnsupported, which the middleware answers with 503, WithFailOpen or
// not, since the store did answer. List yields such an entry without its
// receipt, so that an operator can Forget it.
//
// The rest of an entry stays as it was: key, state, owner, times, the length of
// the receipt, and the fingerprint, which Settle does not get. A writer to
// the store can still remove an entry, after which the work runs again, bring
// back an older one of the same key, and let another request than the first
// have the receipt of its key.
//
// # Rotation
//
// previous ones open what they have sealed, and seal nothing. To change the
// AEAD, deploy three times:
//
//  1. NewSealed(store, old, next): all processes learn to open what comes.
//  2. NewSealed(store, next, old): the new one seals.
//  3. NewSealed(store, next), when the longest keep has passed since the second.
//
// An AEAD with random nonces of 96 bits, such as AES-GCM, must not seal more
// than 2^32 receipts under one key: at 1,000 a second, repeated settles and
// cool-downs included, change it every month.
func NewSealed(store Store, current cipher.AEAD, previous ...cipher.AEAD) Store {
	if store == nil {
		panic("lock: NewSealed: nil Store")
	}
	if err := locksOnly(store); err != nil {
		panic("lock: NewSealed: there is nothing to seal: " + err.Error())
	}
	s := &sealed{Store: store, seals: newSeals(current, previous)}
	if inspector, ok := store.(Inspector); ok {
		return sealedInspector{s, inspector}
	}
	return s
}

// sealed is a Store that seals what goes into another, and opens what comes
// out of it.
type sealed struct {
	Store
	seals seals
}

// Claim is part of [Store].
func (s *sealed) Claim(ctx context.Context, key string, c Claim) (Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	return s.opened(key, e, err)
}

// Settle is part of [Store].
func (s *sealed) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (ok bool, err error) {
	return s.Store.Settle(ctx, key, token, s.seals.seal(receipt, key, token), keep)
}

// Get is part of [Store].
func (s *sealed) Get(ctx context.Context, key string) (Entry, error) {
	e, err := s.Store.Get(ctx, key)
	return s.opened(key, e, err)
}

func (s *sealed) opened(key string, e Entry, err error) (Entry, error) {
	if err != nil || e.State != Settled {
		return e, err
	}
	e.Receipt, err = s.seals.open(e.Receipt, key, e.Token)
	if err != nil {
		// A claim of a settled key changes nothing, so this is certain.
		return Entry{}, err
	}
	return e, nil
}

// MaxLag is that of the store below.
func (s *sealed) MaxLag() time.Duration { return lagOf(s.Store) }

func (s *sealed) prompt() bool { return isPrompt(s.Store) }

// Watch is that of the store below.
func (s *sealed) Watch(key string) (wake <-chan struct{}, stop func()) {
	return hintsOf(s.Store)(key)
}

// sealedInspector is a sealed store over an [Inspector].
type sealedInspector struct {
	*sealed
	inspector Inspector
}

// List is part of [Inspector]. What is to be removed because nothing opens its
// receipt has to be seen first, so it is yielded without one, and is no error.
func (s sealedInspector) List(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range s.inspector.List(ctx) {
			if err == nil && e.State == Settled {
				e.Receipt, _ = s.seals.open(e.Receipt, e.Key, e.Token)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Page is the optional part of [Inspector], if the store below has it.
func (s sealedInspector) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []Entry, next string, err error) {
	return pageOf(ctx, s.inspector, cursor, limit, match)
}

// Forget is part of [Inspector].
func (s sealedInspector) Forget(ctx context.Context, key, token string) (ok bool, err error) {
	return s.inspector.Forget(ctx, key, token)
}
