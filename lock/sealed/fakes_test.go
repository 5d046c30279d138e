package sealed_test

import (
	"context"
	"crypto/cipher"
	"runtime/debug"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// described is a store that says about of itself.
type described struct {
	lock.Store
	about lock.Description
}

func (d described) Describe() lock.Description { return d.about }

// watchedStore keeps the last settled receipt.
type watchedStore struct {
	lock.Store
	settled []byte
}

func (s *watchedStore) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	s.settled = receipt
	return s.Store.Settle(ctx, key, c, receipt, keep)
}

// hinting is a store with hints.
type hinting struct {
	lock.Store
	hints chan struct{}
}

func (h hinting) Describe() lock.Description {
	about := lock.Describe(h.Store)
	about.Watch = func(string) (wake <-chan struct{}, stop func()) { return h.hints, func() {} }
	return about
}

// stackAEAD notes from where it seals.
type stackAEAD struct {
	cipher.AEAD
	seen []byte
}

func (a *stackAEAD) Seal(dst, nonce, plaintext, additional []byte) []byte {
	a.seen = debug.Stack()
	return a.AEAD.Seal(dst, nonce, plaintext, additional)
}
