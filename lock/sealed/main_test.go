package sealed_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	key  = "user=42"
	keep = time.Hour
)

var (
	quiet  = slog.New(slog.DiscardHandler)
	print1 = []byte("request 1")
)

func aesBlock(tb testing.TB, key byte) cipher.Block {
	tb.Helper()
	return must.Get(aes.NewCipher(bytes.Repeat([]byte{key}, 32)))(tb)
}

// gcm is the recommended one, with one of 256 keys.
func gcm(tb testing.TB, key byte) cipher.AEAD {
	tb.Helper()
	return must.Get(cipher.NewGCMWithRandomNonce(aesBlock(tb, key)))(tb)
}

// gcmWithNonce leaves the nonce to its caller.
func gcmWithNonce(tb testing.TB, key byte, size int) cipher.AEAD {
	tb.Helper()
	return must.Get(cipher.NewGCMWithNonceSize(aesBlock(tb, key), size))(tb)
}

// storedKey is the store key of the receipt of key.
func storedKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "once:" + hex.EncodeToString(sum[:])
}

// effect is the work of these tests: it counts its runs.
type effect struct{ runs atomic.Int64 }

func (f *effect) run(answer string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		f.runs.Add(1)
		return []byte(answer), nil
	}
}

// inspector returns the sealed store as an Inspector.
func inspector(tb testing.TB, s lock.Store) lock.Inspector {
	tb.Helper()
	i, ok := s.(lock.Inspector)
	require.True(tb, ok)
	return i
}

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
