package lock_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/failopen"
	"github.com/httplatch/httplatch/lock"
)

func aesBlock(tb testing.TB, key byte) cipher.Block {
	tb.Helper()
	b, err := aes.NewCipher(bytes.Repeat([]byte{key}, 32))
	require.NoError(tb, err)
	return b
}

// gcm is the recommended one, with one of 256 keys.
func gcm(tb testing.TB, key byte) cipher.AEAD {
	tb.Helper()
	a, err := cipher.NewGCMWithRandomNonce(aesBlock(tb, key))
	require.NoError(tb, err)
	return a
}

// gcmWithNonce leaves the nonce to its caller.
func gcmWithNonce(tb testing.TB, key byte, size int) cipher.AEAD {
	tb.Helper()
	a, err := cipher.NewGCMWithNonceSize(aesBlock(tb, key), size)
	require.NoError(tb, err)
	return a
}

// storedKey is the store key of the receipt of key.
func storedKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "once:" + hex.EncodeToString(sum[:])
}

func lockerOver(t *testing.T, s lock.Store, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(s, append([]lock.Option{lock.WithLogger(quiet), lock.WithBudget(10 * time.Second)}, opts...)...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	return l
}

// onceOver runs f under key, which must leave or find a receipt.
func onceOver(t *testing.T, s lock.Store, key, answer string) (receipt string, replayed bool) {
	t.Helper()
	var f effect
	b, replayed, err := lockerOver(t, s).Once(t.Context(), key, print1, f.run(answer))
	require.NoError(t, err)
	return string(b), replayed
}

// requireFailsClosed checks that a repeat under key is refused by what is in
// the store, that its work is not run, and that the entry stays.
func requireFailsClosed(t *testing.T, s lock.Store, key, class string) {
	t.Helper()
	var f effect
	_, replayed, err := lockerOver(t, s).Once(t.Context(), key, print1, f.run("a second run"))
	require.Error(t, err)
	require.False(t, replayed)
	require.Zero(t, f.runs.Load(), "the work was run again")

	before := listedEntry(t, s, key)
	_, err = s.Claim(t.Context(), storedKey(key), lock.Claim{Token: "another", Lease: time.Minute})
	require.ErrorIs(t, err, lock.ErrNotApplied)
	requireClass(t, class, err)
	_, err = s.Get(t.Context(), storedKey(key))
	requireClass(t, class, err)
	require.NotContains(t, err.Error(), storedKey(key))
	require.NotContains(t, err.Error(), before.Token)
	require.Equal(t, before.Token, listedEntry(t, s, key).Token)
}

func requireClass(t *testing.T, class string, err error) {
	t.Helper()
	var c interface{ Class() string }
	require.ErrorAs(t, err, &c)
	require.Equal(t, class, c.Class())
}

// listedEntry is what List yields of the receipt of key.
func listedEntry(t *testing.T, s lock.Store, key string) lock.Entry {
	t.Helper()
	i, ok := s.(lock.Inspector)
	require.True(t, ok)
	for e, err := range i.List(t.Context()) {
		require.NoError(t, err)
		if e.Key == storedKey(key) {
			return e
		}
	}
	require.Fail(t, "not listed")
	return lock.Entry{}
}

// overwrite puts receipt under key in a store, in place of what is there, as
// an attacker who can write to a server does.
func overwrite(t *testing.T, s lock.Store, key, token string, receipt []byte) {
	t.Helper()
	i, ok := s.(lock.Inspector)
	require.True(t, ok)
	e, err := s.Get(t.Context(), storedKey(key))
	require.NoError(t, err)
	if e.State != lock.Free {
		ok, err = i.Forget(t.Context(), storedKey(key), e.Token)
		require.NoError(t, err)
		require.True(t, ok)
	}
	e, err = s.Claim(t.Context(), storedKey(key), lock.Claim{Token: token, Attempt: 1, Fingerprint: print1, Lease: time.Minute})
	require.NoError(t, err)
	require.Equal(t, lock.Held, e.State)
	ok, err = s.Settle(t.Context(), storedKey(key), token, receipt, keep)
	require.NoError(t, err)
	require.True(t, ok)
}

// receiptOf is what is stored as the receipt of key.
func receiptOf(t *testing.T, s lock.Store, key string) lock.Entry {
	t.Helper()
	e, err := s.Get(t.Context(), storedKey(key))
	require.NoError(t, err)
	require.Equal(t, lock.Settled, e.State)
	return e
}

func TestSealedKeepsTheContract(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]cipher.AEAD{
		"own nonces": gcm(t, 1), "nonces of 12 bytes": gcmWithNonce(t, 1, 12), "nonces of 24 bytes": gcmWithNonce(t, 1, 24),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			latchtest.TestStore(t, 20*time.Millisecond, func(t *testing.T) lock.Store {
				t.Helper()
				return lock.NewSealed(lock.NewMemory(), a, gcm(t, 2))
			})
		})
	}
}

// What is written to the server in place of a receipt, by an attacker who has
// seen all receipts but not the key.
func TestSealedReceiptsAreBoundToTheirEntry(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, inner lock.Store, mine, other lock.Entry){
		// The twin: what is written like this and is no forgery is replayed.
		"the same again": func(t *testing.T, inner lock.Store, mine, _ lock.Entry) {
			overwrite(t, inner, "mine", mine.Token, mine.Receipt)
		},
		"another key's receipt": func(t *testing.T, inner lock.Store, mine, other lock.Entry) {
			overwrite(t, inner, "mine", mine.Token, other.Receipt)
		},
		"another key's receipt and token": func(t *testing.T, inner lock.Store, _, other lock.Entry) {
			overwrite(t, inner, "mine", other.Token, other.Receipt)
		},
		"another token": func(t *testing.T, inner lock.Store, mine, _ lock.Entry) {
			overwrite(t, inner, "mine", mine.Token+"0", mine.Receipt)
		},
		"both values swapped": func(t *testing.T, inner lock.Store, mine, other lock.Entry) {
			overwrite(t, inner, "mine", other.Token, other.Receipt)
			overwrite(t, inner, "other", mine.Token, mine.Receipt)
		},
	}
	for name, forge := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := lock.NewMemory()
			s := lock.NewSealed(inner, gcm(t, 1))
			onceOver(t, s, "mine", "answer to mine")
			onceOver(t, s, "other", "answer to other")
			mine, other := receiptOf(t, inner, "mine"), receiptOf(t, inner, "other")
			forge(t, inner, mine, other)
			for key, was := range map[string]lock.Entry{"mine": mine, "other": other} {
				now := receiptOf(t, inner, key)
				if now.Token == was.Token && bytes.Equal(now.Receipt, was.Receipt) {
					receipt, replayed := onceOver(t, s, key, "a second run")
					require.True(t, replayed)
					require.Equal(t, "answer to "+key, receipt)
					continue
				}
				requireFailsClosed(t, s, key, "seal")
			}
		})
	}
}

// The twin of the test above: what happens to receipts that are not sealed.
func TestUnsealedReceiptsCanBeSwapped(t *testing.T) {
	t.Parallel()
	s := lock.NewMemory()
	onceOver(t, s, "mine", "answer to mine")
	onceOver(t, s, "other", "answer to other")
	other := receiptOf(t, s, "other")
	overwrite(t, s, "mine", other.Token, other.Receipt)
	receipt, _ := onceOver(t, s, "mine", "a second run")
	require.Equal(t, "answer to other", receipt)
}

// Key and token are distinguished by more than their concatenation.
func TestSealedKeyAndTokenAreTwo(t *testing.T) {
	t.Parallel()
	inner := lock.NewMemory()
	s := lock.NewSealed(inner, gcm(t, 1))
	settle := func(s lock.Store, key, token string, receipt []byte) {
		_, err := s.Claim(t.Context(), key, lock.Claim{Token: token, Lease: time.Minute})
		require.NoError(t, err)
		ok, err := s.Settle(t.Context(), key, token, receipt, keep)
		require.NoError(t, err)
		require.True(t, ok)
	}
	settle(s, "user=42", "7token", []byte("done"))
	e, err := inner.Get(t.Context(), "user=42")
	require.NoError(t, err)
	for key, token := range map[string]string{"user=4": "27token", "user=427": "token", "user": "=427token"} {
		settle(inner, key, token, e.Receipt)
		_, err = s.Get(t.Context(), key)
		requireClass(t, "seal", err)
	}
}

func TestSealedReceiptsThatAreNotWhole(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]cipher.AEAD{"own nonces": gcm(t, 1), "nonces of 12 bytes": gcmWithNonce(t, 1, 12)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := lock.NewMemory()
			s := lock.NewSealed(inner, a)
			onceOver(t, s, key, "answer")
			e := receiptOf(t, inner, key)
			check := func(receipt []byte) {
				t.Helper()
				overwrite(t, inner, key, e.Token, receipt)
				class := "seal"
				if !bytes.HasPrefix(receipt, e.Receipt[:4]) {
					class = "unsealed"
				}
				requireFailsClosed(t, s, key, class)
			}
			for i := range e.Receipt {
				for bit := range 8 {
					altered := slices.Clone(e.Receipt)
					altered[i] ^= 1 << bit
					check(altered)
				}
			}
			for n := range e.Receipt {
				check(e.Receipt[:n])
				check(e.Receipt[n+1:])
			}
			check(append(slices.Clone(e.Receipt), 0))
			check(nil)
			check([]byte("answer"))

			overwrite(t, inner, key, e.Token, e.Receipt)
			receipt, _ := onceOver(t, s, key, "a second run")
			require.Equal(t, "answer", receipt)
		})
	}
}

// Receipts from before sealing, and those of a version to come, are neither
// replayed nor run again.
func TestSealedRefusesWhatItDidNotSeal(t *testing.T) {
	t.Parallel()
	inner := lock.NewMemory()
	onceOver(t, inner, key, "from before")
	s := lock.NewSealed(inner, gcm(t, 1))
	requireFailsClosed(t, s, key, "unsealed")

	onceOver(t, s, "new", "answer")
	e := receiptOf(t, inner, "new")
	e.Receipt[3]++
	overwrite(t, inner, "new", e.Token, e.Receipt)
	requireFailsClosed(t, s, "new", "unsealed")

	var f effect
	l := lockerOver(t, inner)
	lease, err := l.Acquire(t.Context(), "user=42")
	require.NoError(t, err)
	require.NoError(t, lease.Settle(t.Context(), nil, keep))
	_, _, err = lockerOver(t, s).Once(t.Context(), key, print1, f.run("a second run"))
	require.Error(t, err)
	require.Error(t, lockerOver(t, s).Do(t.Context(), "user=42", func(context.Context) error { f.runs.Add(1); return nil }))
	require.Zero(t, f.runs.Load())
}

// A roll-out of three steps, in which processes of two neighbouring ones run
// side by side.
func TestSealedRotation(t *testing.T) {
	t.Parallel()
	inner := lock.NewMemory()
	before := lock.NewSealed(inner, gcm(t, 1))
	first := lock.NewSealed(inner, gcm(t, 1), gcm(t, 2))
	second := lock.NewSealed(inner, gcm(t, 2), gcm(t, 3), gcm(t, 1))
	third := lock.NewSealed(inner, gcm(t, 2))
	for key, stores := range map[string][]lock.Store{
		"sealed before":        {before, first, second},
		"sealed in the first":  {first, before, second},
		"sealed in the second": {second, first, third},
	} {
		onceOver(t, stores[0], key, "answer")
		for _, s := range stores {
			receipt, replayed := onceOver(t, s, key, "a second run")
			require.True(t, replayed, key)
			require.Equal(t, "answer", receipt)
		}
	}
	requireFailsClosed(t, before, "sealed in the second", "seal")
	requireFailsClosed(t, third, "sealed before", "seal")
	requireFailsClosed(t, third, "sealed in the first", "seal")
}

func TestSealedLostKey(t *testing.T) {
	t.Parallel()
	inner := lock.NewMemory()
	onceOver(t, lock.NewSealed(inner, gcm(t, 1)), key, "answer")
	s := lock.NewSealed(inner, gcm(t, 2))
	requireFailsClosed(t, s, key, "seal")
	onceOver(t, s, "another", "answer")

	e := listedEntry(t, s, key)
	require.Equal(t, lock.Settled, e.State)
	require.Empty(t, e.Receipt)
	require.Equal(t, "answer", string(listedEntry(t, s, "another").Receipt))
	i, ok := s.(lock.Inspector)
	require.True(t, ok)
	ok, err := i.Forget(t.Context(), e.Key, e.Token)
	require.NoError(t, err)
	require.True(t, ok)
	_, replayed := onceOver(t, s, key, "a second run")
	require.False(t, replayed)
}

// A receipt that does not open is an answer of the store: it is asked for once,
// even where a store that gives no answer would be asked again, and it is no
// reason to run the work unprotected.
func TestSealedFailsAtOnceAndNeverOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		lease, err := lockerOver(t, lock.NewSealed(s, gcm(t, 1))).Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, lease.Settle(t.Context(), nil, keep))

		var seen events
		var logged bytes.Buffer
		l := lockerOver(t, lock.NewSealed(s, gcm(t, 2)), lock.WithObserver(seen.observe),
			lock.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))), lock.WithWait(time.Minute))
		began, claims := time.Now(), s.count(claim)
		var hold failopen.Hold
		_, err = l.Acquire(failopen.With(t.Context(), &hold), key)
		requireClass(t, "seal", err)
		require.ErrorIs(t, err, lock.ErrNotApplied)
		require.NotErrorIs(t, err, lock.ErrUnavailable)
		require.Nil(t, hold.End)
		require.Zero(t, time.Since(began))
		require.Equal(t, 1, s.count(claim)-claims)
		require.Equal(t, 1, seen.count(lock.EventRefused))
		require.Contains(t, logged.String(), "class=seal")
		require.NotContains(t, logged.String(), key)
	})
}

// watchedStore shows what was settled last.
type watchedStore struct {
	lock.Store
	settled []byte
}

func (s *watchedStore) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (bool, error) {
	s.settled = receipt
	return s.Store.Settle(ctx, key, token, receipt, keep)
}

func TestSealedStoresNoPlaintext(t *testing.T) {
	t.Parallel()
	const marker = "4111 1111 1111 1111"
	for name, tt := range map[string]struct {
		aead     cipher.AEAD
		overhead int
	}{
		"own nonces":         {gcm(t, 1), 32},
		"nonces of 12 bytes": {gcmWithNonce(t, 1, 12), 32},
		"nonces of 24 bytes": {gcmWithNonce(t, 1, 24), 44},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := &watchedStore{Store: lock.NewMemory()}
			s := lock.NewSealed(inner, tt.aead)
			distinct := make(map[string]bool)
			check := func() {
				require.NotContains(t, string(inner.settled), marker)
				require.Len(t, inner.settled, len(marker)+tt.overhead)
				distinct[string(inner.settled[4:16])] = true
			}
			for i := range 100 {
				onceOver(t, s, fmt.Sprint("key ", i), marker)
				check()
			}
			// One entry settled again, as after a lost reply.
			_, err := s.Claim(t.Context(), "k", lock.Claim{Token: "a", Lease: time.Minute})
			require.NoError(t, err)
			for range 2 {
				ok, err := s.Settle(t.Context(), "k", "a", []byte(marker), keep)
				require.NoError(t, err)
				require.True(t, ok)
				check()
			}
			require.Len(t, distinct, 102, "a nonce was used twice")
		})
	}
}

func TestSealedEmptyReceipts(t *testing.T) {
	t.Parallel()
	inner := lock.NewMemory()
	s := lock.NewSealed(inner, gcm(t, 1))
	l := lockerOver(t, s)
	lease, err := l.Acquire(t.Context(), "user=42")
	require.NoError(t, err)
	require.NoError(t, lease.Settle(t.Context(), nil, keep))
	_, err = l.Acquire(t.Context(), "user=42")
	require.ErrorIs(t, err, lock.ErrSettled)
	e, err := s.Get(t.Context(), "user=42")
	require.NoError(t, err)
	require.Nil(t, e.Receipt)
	e, err = inner.Get(t.Context(), "user=42")
	require.NoError(t, err)
	require.Len(t, e.Receipt, 32)

	// An answer cannot be made an empty one.
	onceOver(t, s, key, "answer")
	overwrite(t, inner, key, e.Token, e.Receipt)
	requireFailsClosed(t, s, key, "seal")
}

func TestSealedForUseByMany(t *testing.T) {
	t.Parallel()
	s := lock.NewSealed(lock.NewMemory(), gcm(t, 1), gcmWithNonce(t, 2, 12))
	lockers := []*lock.Locker{lockerOver(t, s, lock.WithWait(10*time.Second)), lockerOver(t, s, lock.WithWait(10*time.Second))}
	var wg sync.WaitGroup
	var effects [10]effect
	for i := range 200 {
		wg.Go(func() {
			n := i % len(effects)
			answer := bytes.Repeat([]byte{byte(n)}, 1000)
			receipt, _, err := lockers[i%2].Once(t.Context(), fmt.Sprint(n), print1, effects[n].run(string(answer)))
			if err != nil || !bytes.Equal(receipt, answer) {
				t.Error(err, len(receipt))
			}
		})
	}
	wg.Wait()
	for i := range effects {
		require.EqualValues(t, 1, effects[i].runs.Load())
	}
}

// failingStore is a store whose calls fail.
type failingStore struct {
	lock.Store
	err error
}

func (s failingStore) Claim(context.Context, string, lock.Claim) (lock.Entry, error) {
	return lock.Entry{}, s.err
}

func (s failingStore) Get(context.Context, string) (lock.Entry, error) { return lock.Entry{}, s.err }

func (s failingStore) Settle(context.Context, string, string, []byte, time.Duration) (bool, error) {
	return false, s.err
}

func TestSealedPassesFailuresOn(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	s := lock.NewSealed(failingStore{lock.NewMemory(), down}, gcm(t, 1))
	_, err := s.Claim(t.Context(), "k", lock.Claim{Token: "a", Lease: time.Minute})
	require.Equal(t, down, err)
	_, err = s.Get(t.Context(), "k")
	require.Equal(t, down, err)
	_, err = s.Settle(t.Context(), "k", "a", nil, keep)
	require.Equal(t, down, err)
}

func TestSealedHasWhatItsStoreHas(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		inner  lock.Store
		lists  bool
		maxLag time.Duration
		prompt bool
	}{
		"memory":             {lock.NewMemory(), true, 0, true},
		"sealed twice":       {lock.NewSealed(lock.NewMemory(), gcm(t, 9)), true, 0, true},
		"the five methods":   {struct{ lock.Store }{lock.NewMemory()}, false, 2 * time.Minute, false},
		"a lag of its own":   {newScripted(), false, 5 * time.Second, false},
		"only an Inspector":  {inspectedMemory(), true, 2 * time.Minute, false},
		"sealed, lists only": {lock.NewSealed(inspectedMemory(), gcm(t, 9)), true, 2 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stacks := &stackAEAD{AEAD: gcm(t, 1)}
			s := lock.NewSealed(tt.inner, stacks)
			_, lists := s.(lock.Inspector)
			require.Equal(t, tt.lists, lists)
			lag, ok := s.(interface{ MaxLag() time.Duration })
			require.True(t, ok)
			require.Equal(t, tt.maxLag, lag.MaxLag())

			// The calls of a store that never waits need nothing of what others need.
			onceOver(t, s, key, "answer")
			require.Equal(t, tt.prompt, !bytes.Contains(stacks.seen, []byte("lock/internal/send.")))
		})
	}
}

type inspectedOnly struct {
	lock.Store
	lock.Inspector
}

func inspectedMemory() lock.Store {
	s := lock.NewMemory()
	i, _ := s.(lock.Inspector)
	return inspectedOnly{s, i}
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

func TestSealedListStopsWhenAsked(t *testing.T) {
	t.Parallel()
	s := lock.NewSealed(lock.NewMemory(), gcm(t, 1))
	for i := range 10 {
		onceOver(t, s, fmt.Sprint(i), "answer")
	}
	i, ok := s.(lock.Inspector)
	require.True(t, ok)
	n := 0
	for _, err := range i.List(t.Context()) {
		require.NoError(t, err)
		if n++; n == 3 {
			break
		}
	}
	require.Equal(t, 3, n)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range i.List(ctx) {
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestNewSealedPanics(t *testing.T) {
	t.Parallel()
	s, a := lock.NewMemory(), gcm(t, 1)
	require.PanicsWithValue(t, "lock: NewSealed: nil Store", func() { lock.NewSealed(nil, a) })
	require.PanicsWithValue(t, "lock: NewSealed: nil cipher.AEAD", func() { lock.NewSealed(s, nil) })
	require.PanicsWithValue(t, "lock: NewSealed: nil cipher.AEAD", func() { lock.NewSealed(s, a, a, nil) })
	short := gcmWithNonce(t, 1, 8)
	require.PanicsWithValue(t, "lock: NewSealed: nonces of 8 bytes are too short to be random, which takes at least 12", func() { lock.NewSealed(s, short) })
	require.NotPanics(t, func() { lock.NewSealed(s, a, short) }, "it only opens")
}

func FuzzSealed(f *testing.F) {
	inner := lock.NewMemory()
	s := lock.NewSealed(inner, gcm(f, 1), gcmWithNonce(f, 2, 12))
	for _, seed := range []string{"", "\x00", "\x00LS", "\x00LS\x01", "\x00LS\x01nonce12bytes", "\x00LS\x01nonce12bytesand the tag's 16", "answer"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, receipt []byte) {
		overwrite(t, inner, key, "token", receipt)
		_, err := s.Get(t.Context(), storedKey(key))
		require.ErrorIs(t, err, lock.ErrNotApplied)
	})
}
