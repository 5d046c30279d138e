package guardtest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// StubStore is a store whose Claim can be replaced. Unlike the memory store
// itself, it counts as a store that may block and lose answers.
type StubStore struct {
	lock.Store
	OnClaim func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error)
}

// Claim is OnClaim, if that is set.
func (s *StubStore) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if s.OnClaim != nil {
		return s.OnClaim(ctx, key, c)
	}
	return s.Store.Claim(ctx, key, c)
}

// FlakyStore is a memory store that can be down.
func FlakyStore(down *atomic.Bool, err error) *StubStore {
	memory := memstore.New()
	return &StubStore{Store: memory, OnClaim: func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
		if down.Load() {
			return lock.Entry{}, err
		}
		return memory.Claim(ctx, key, c)
	}}
}

// MortalStore is a memory store as seen by a process that dies: after its death, none of the
// process's commands arrives.
type MortalStore struct {
	lock.Store
	Dead atomic.Bool
}

var errDead = fmt.Errorf("%w: this process is dead", lock.ErrNotApplied)

// Renew does nothing once the process is dead.
func (s *MortalStore) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if s.Dead.Load() {
		return false, errDead
	}
	return s.Store.Renew(ctx, key, c)
}

// Settle does nothing once the process is dead.
func (s *MortalStore) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	if s.Dead.Load() {
		return false, errDead
	}
	return s.Store.Settle(ctx, key, c, receipt, keep)
}

// Release does nothing once the process is dead.
func (s *MortalStore) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if s.Dead.Load() {
		return false, errDead
	}
	return s.Store.Release(ctx, key, c)
}

// OpenRedis returns a store in the server at url, with its own prefix for the test.
func OpenRedis(tb testing.TB, url string) lock.Store {
	tb.Helper()
	store, err := redisstore.Open(tb.Context(), url, redisstore.WithPrefix("test:"+uuid.NewString()+":"))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, store.Close()) })
	return store
}

// NewSeal returns an AEAD for sealed.New, whose secret has 16, 24 or 32 bytes.
func NewSeal(tb testing.TB, secret string) cipher.AEAD {
	tb.Helper()
	block, err := aes.NewCipher([]byte(secret))
	require.NoError(tb, err)
	aead, err := cipher.NewGCMWithRandomNonce(block)
	require.NoError(tb, err)
	return aead
}
