package middleware_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/sealed"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestSealedReceiptsAreBoundToTheirKey: a client that can write to the store, but
// has no key, cannot make one request's answer another's.
func TestSealedReceiptsAreBoundToTheirKey(t *testing.T) {
	t.Parallel()
	block, err := aes.NewCipher(make([]byte, 32))
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	memory := memstore.New()
	var swapped lock.Entry
	store := &stubStore{Store: memory, OnClaim: func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
		entry, err := memory.Claim(ctx, key, c)
		if entry.State == lock.Settled && swapped.Receipt != nil {
			entry.Receipt = swapped.Receipt
		} else if entry.State == lock.Settled {
			swapped = entry
		}
		return entry, err
	}}
	l := newLocker(t, sealed.New(store, aead), lock.WithLogger(quiet), patient)
	var e effects
	h := once(l)(e.then(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, private) }))
	first := serve(h, keyed("a"))
	requireReplay(t, first, serve(h, keyed("a")))
	require.NotContains(t, string(swapped.Receipt), private)
	serve(h, keyed("b"))
	e.require(t, 2)
	w := serve(h, keyed("b"))
	require.Equal(t, 503, w.Code)
	require.NotContains(t, w.Body.String(), private)
	e.require(t, 2)
}

const private = "s3cr3t"

// TestNothingPrivateIsShown: keys and bodies of requests are neither in events
// nor in the names that a store gets.
func TestNothingPrivateIsShown(t *testing.T) {
	t.Parallel()
	var shown []string
	memory := memstore.New()
	store := &stubStore{Store: memory, OnClaim: func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
		shown = append(shown, key, string(c.Fingerprint))
		return memory.Claim(ctx, key, c)
	}}
	l := newLocker(t, store, patient, lock.WithObserver(func(_ context.Context, e lock.Event) {
		assert.Contains(t, []string{"idempotent", "dedupe"}, e.Name, "a bounded label")
		shown = append(shown, e.Name, e.Key)
	}))
	for range 2 {
		r := keyedBody(private, private)
		r.Header.Set("X-User-ID", private)
		r.URL.Path = "/" + private
		serve(once(l)(http.HandlerFunc(created)), r)
		r.Body = io.NopCloser(strings.NewReader(private))
		serve(latch.Dedupe(l, byUser, time.Hour)(http.HandlerFunc(created)), r)
	}
	require.NotEmpty(t, shown)
	require.NotContains(t, strings.Join(shown, " "), private)
}

// TestCredentialsAreNotStored: a scope or key that is made of credentials is a hash in the store,
// which the console shows, and in events.
func TestCredentialsAreNotStored(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"Authorization", "Proxy-Authorization", "Cookie", "X-User-ID"} {
		var shown []string
		store := memstore.New()
		l := newLocker(t, store, patient, lock.WithObserver(func(_ context.Context, e lock.Event) {
			shown = append(shown, e.Name, e.Key, e.Owner)
		}))
		f := keyfunc.Header(header)
		for _, guard := range []func(http.Handler) http.Handler{
			latch.Idempotent(l, f, keyfunc.IdempotencyKey), latch.Dedupe(l, f, time.Hour), latch.Lock(l, "session", f, latch.WithCooldown(time.Hour)),
		} {
			r := keyed("k")
			r.Header.Set(header, "Bearer "+private)
			require.Equal(t, 201, serve(guard(http.HandlerFunc(created)), r).Code)
		}
		n := 0
		for entry, err := range store.List(t.Context()) {
			require.NoError(t, err)
			shown = append(shown, entry.Key, entry.Owner, string(entry.Fingerprint), string(entry.Receipt))
			n++
		}
		require.Equal(t, 3, n)
		if header == "X-User-ID" {
			require.Contains(t, strings.Join(shown, " "), private, "the twin: this one is shown")
		} else {
			require.NotContains(t, strings.Join(shown, " "), private)
		}
	}
}
