package snippets_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/sealed"
	"github.com/httplatch/httplatch/middleware/console"
)

// aeadOf is AES-256-GCM with one of the secrets of the secret manager, of 32 random bytes.
func aeadOf(secret []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// deployments are the three of a rotation.
func deployments(store lock.Store, old, next cipher.AEAD) (before, first, second, third *sealed.Store) {
	before = sealed.New(store, old)

	first = sealed.New(store, old, next)  // 1. every process learns to open what comes
	second = sealed.New(store, next, old) // 2. the new one seals
	third = sealed.New(store, next)       // 3. the old one is gone

	return before, first, second, third
}

func TestRotation(t *testing.T) {
	t.Parallel()
	old, err := aeadOf(bytes.Repeat([]byte{1}, 32))
	require.NoError(t, err)
	next, err := aeadOf(bytes.Repeat([]byte{2}, 32))
	require.NoError(t, err)
	memory := memstore.New()
	before, first, second, third := deployments(memory, old, next)
	app := new(application)
	routes := func(s lock.Store) http.Handler { return tenantRoutes(newLocker(t, s), app.handler(http.StatusCreated)) }

	// While a deployment is under way, its processes and those of the one before it read
	// what the others have written.
	for name, pair := range map[string][2]http.Handler{
		"1": {routes(before), routes(first)},
		"2": {routes(first), routes(second)},
	} {
		for i, writer := range pair {
			key := fmt.Sprint(name, i)
			require.False(t, replayed(order(writer, "acme.shop.test", key)))
			require.True(t, replayed(order(pair[1-i], "acme.shop.test", key)))
		}
	}
	require.EqualValues(t, 4, app.effects.Load())

	// Step 2 comes too early where processes of before still run, and step 3 where the keep
	// of what the old one has sealed is not over.
	require.False(t, replayed(order(routes(second), "acme.shop.test", "early")))
	require.Equal(t, http.StatusServiceUnavailable, order(routes(before), "acme.shop.test", "early").Code)
	require.False(t, replayed(order(routes(first), "acme.shop.test", "kept")))
	require.Equal(t, http.StatusServiceUnavailable, order(routes(third), "acme.shop.test", "kept").Code)
	require.True(t, replayed(order(routes(second), "acme.shop.test", "kept")))
	require.True(t, replayed(order(routes(third), "acme.shop.test", "early")))
}

// What the store has of an order is not its answer, nor whose it is.
func TestSealedRecords(t *testing.T) {
	t.Parallel()
	aead, err := aeadOf(bytes.Repeat([]byte{1}, 32))
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		over     func(lock.Store) lock.Store
		readable bool
	}{
		"plain":  {func(s lock.Store) lock.Store { return s }, true},
		"sealed": {func(s lock.Store) lock.Store { return sealed.New(s, aead) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memory := memstore.New()
			locker := newLocker(t, tt.over(memory))
			h := tenantRoutes(locker, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("tea for Ann"))
			}))
			require.Equal(t, http.StatusOK, order(h, "acme.shop.test", "k").Code)
			for e, err := range memory.List(context.Background()) {
				require.NoError(t, err)
				require.Equal(t, tt.readable, bytes.Contains(e.Receipt, []byte("Ann")))
				require.Equal(t, tt.readable, strings.Contains(e.Owner, "acme/42"))
				require.NotContains(t, e.Key, "acme", "a hash")
			}
			erased, left, err := console.Erase(t.Context(), locker, "acme/42")
			require.NoError(t, err)
			require.Equal(t, []int{1, 0}, []int{erased, left})
		})
	}
}
