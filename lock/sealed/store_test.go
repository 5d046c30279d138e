package sealed_test

import (
	"bytes"
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/sealed"
)

// onceOver runs f under key, which must leave or find a receipt.
func onceOver(t *testing.T, s lock.Store, key, answer string) (receipt string, replayed bool) {
	t.Helper()
	var f effect
	b, replayed, err := fault.Locker(t, s).Once(t.Context(), key, print1, f.run(answer))
	require.NoError(t, err)
	return string(b), replayed
}

// requireFailsClosed checks that a repeat under key is refused by the entry in
// the store, that its work is not run, and that the entry stays.
func requireFailsClosed(t *testing.T, s lock.Store, key, class string) {
	t.Helper()
	var f effect
	_, replayed, err := fault.Locker(t, s).Once(t.Context(), key, print1, f.run("a second run"))
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

// listedEntry returns the entry that List yields for the receipt of key.
func listedEntry(t *testing.T, s lock.Store, key string) lock.Entry {
	t.Helper()
	for e, err := range inspector(t, s).List(t.Context()) {
		require.NoError(t, err)
		if e.Key == storedKey(key) {
			return e
		}
	}
	require.Fail(t, "not listed")
	return lock.Entry{}
}

// overwrite puts receipt under key in a store, in place of the stored one, as
// an attacker who can write to a server does.
func overwrite(t *testing.T, s lock.Store, key, token string, receipt []byte) {
	t.Helper()
	e := must.Entry(t)(s.Get(t.Context(), storedKey(key)))
	if e.State != lock.Free {
		must.Yes(t)(inspector(t, s).Forget(t.Context(), storedKey(key), e.Token))
	}
	e = must.Entry(t)(s.Claim(t.Context(), storedKey(key), lock.Claim{Token: token, Attempt: 1, Fingerprint: print1, Lease: time.Minute}))
	require.Equal(t, lock.Held, e.State)
	must.Yes(t)(s.Settle(t.Context(), storedKey(key), lock.Claim{Token: token}, receipt, keep))
}

// receiptOf returns the stored receipt of key.
func receiptOf(t *testing.T, s lock.Store, key string) lock.Entry {
	t.Helper()
	e := must.Entry(t)(s.Get(t.Context(), storedKey(key)))
	require.Equal(t, lock.Settled, e.State)
	return e
}

func TestKeepsTheContract(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]cipher.AEAD{
		"own nonces": gcm(t, 1), "nonces of 12 bytes": gcmWithNonce(t, 1, 12), "nonces of 24 bytes": gcmWithNonce(t, 1, 24),
	} {
		t.Run(name, func(t *testing.T) {
			latchtest.TestStore(t, 20*time.Millisecond, func(t *testing.T) lock.Store {
				return sealed.New(memstore.New(), a, gcm(t, 2))
			})
		})
	}
}

// An attacker who has seen all receipts but not the key writes other bytes to
// the server in place of a receipt.
func TestReceiptsAreBoundToTheirEntry(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, inner lock.Store, mine, other lock.Entry){
		// The twin: a receipt that is written in this way and is not a forgery is replayed.
		"the same again": func(t *testing.T, inner lock.Store, mine, _ lock.Entry) {
			overwrite(t, inner, "mine", mine.Token, mine.Receipt)
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
			inner := memstore.New()
			s := sealed.New(inner, gcm(t, 1))
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

// The twin of the test above, with receipts that are not sealed.
func TestUnsealedReceiptsCanBeSwapped(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	onceOver(t, s, "mine", "answer to mine")
	onceOver(t, s, "other", "answer to other")
	other := receiptOf(t, s, "other")
	overwrite(t, s, "mine", other.Token, other.Receipt)
	receipt, _ := onceOver(t, s, "mine", "a second run")
	require.Equal(t, "answer to other", receipt)
}

// Key and token are distinguished by more than their concatenation.
func TestKeyAndTokenAreTwo(t *testing.T) {
	t.Parallel()
	inner := memstore.New()
	s := sealed.New(inner, gcm(t, 1))
	settle := func(s lock.Store, key, token string, receipt []byte) {
		must.Entry(t)(s.Claim(t.Context(), key, lock.Claim{Token: token, Lease: time.Minute}))
		must.Yes(t)(s.Settle(t.Context(), key, lock.Claim{Token: token}, receipt, keep))
	}
	settle(s, "user=42", "7token", []byte("done"))
	e := must.Entry(t)(inner.Get(t.Context(), "user=42"))
	for key, token := range map[string]string{"user=4": "27token", "user=427": "token", "user": "=427token"} {
		settle(inner, key, token, e.Receipt)
		_, err := s.Get(t.Context(), key)
		requireClass(t, "seal", err)
	}
}

func TestReceiptsThatAreNotWhole(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]cipher.AEAD{"own nonces": gcm(t, 1), "nonces of 12 bytes": gcmWithNonce(t, 1, 12)} {
		t.Run(name, func(t *testing.T) {
			inner := memstore.New()
			s := sealed.New(inner, a)
			onceOver(t, s, key, "answer")
			e := receiptOf(t, inner, key)
			check := func(receipt []byte) {
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

// Receipts from before sealing, and of a later version, are not replayed, and their work does
// not run again.
func TestRefusesWhatItDidNotSeal(t *testing.T) {
	t.Parallel()
	inner := memstore.New()
	onceOver(t, inner, key, "from before")
	s := sealed.New(inner, gcm(t, 1))
	requireFailsClosed(t, s, key, "unsealed")

	onceOver(t, s, "new", "answer")
	e := receiptOf(t, inner, "new")
	e.Receipt[3]++
	overwrite(t, inner, "new", e.Token, e.Receipt)
	requireFailsClosed(t, s, "new", "unsealed")

	var f effect
	l := fault.Locker(t, inner)
	lease := must.Get(l.Acquire(t.Context(), "user=42"))(t)
	require.NoError(t, lease.Settle(t.Context(), nil, keep))
	_, _, err := fault.Locker(t, s).Once(t.Context(), key, print1, f.run("a second run"))
	require.Error(t, err)
	require.Error(t, fault.Locker(t, s).Do(t.Context(), "user=42", func(context.Context) error { f.runs.Add(1); return nil }))
	require.Zero(t, f.runs.Load())
}

// A roll-out of three steps, in which processes of two neighbouring ones run
// side by side.
func TestRotation(t *testing.T) {
	t.Parallel()
	inner := memstore.New()
	before := sealed.New(inner, gcm(t, 1))
	first := sealed.New(inner, gcm(t, 1), gcm(t, 2))
	second := sealed.New(inner, gcm(t, 2), gcm(t, 3), gcm(t, 1))
	third := sealed.New(inner, gcm(t, 2))
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

func TestLostKey(t *testing.T) {
	t.Parallel()
	inner := memstore.New()
	onceOver(t, sealed.New(inner, gcm(t, 1)), key, "answer")
	s := sealed.New(inner, gcm(t, 2))
	requireFailsClosed(t, s, key, "seal")
	onceOver(t, s, "another", "answer")

	e := listedEntry(t, s, key)
	require.Equal(t, lock.Settled, e.State)
	require.Empty(t, e.Receipt)
	require.Equal(t, "answer", string(listedEntry(t, s, "another").Receipt))
	must.Yes(t)(inspector(t, s).Forget(t.Context(), e.Key, e.Token))
	_, replayed := onceOver(t, s, key, "a second run")
	require.False(t, replayed)
}

// A receipt that does not open is an answer: it is asked for once, and is no reason to run the work unprotected.
func TestFailsAtOnceAndNeverOpen(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		s := fault.New()
		lease := must.Get(fault.Locker(t, sealed.New(s, gcm(t, 1))).Acquire(t.Context(), key))(t)
		require.NoError(t, lease.Settle(t.Context(), nil, keep))

		var refused atomic.Int32
		var logged bytes.Buffer
		l := fault.Locker(t, sealed.New(s, gcm(t, 2)), lock.WithObserver(func(_ context.Context, e lock.Event) {
			if e.Kind == lock.EventRefused {
				refused.Add(1)
			}
		}),
			lock.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))), lock.WithWait(time.Minute), lock.WithFailOpen())
		began, claims := time.Now(), s.Count(fault.Claim)
		_, err := l.Acquire(t.Context(), key)
		requireClass(t, "seal", err)
		require.ErrorIs(t, err, lock.ErrNotApplied)
		require.NotErrorIs(t, err, lock.ErrUnavailable)
		require.Zero(t, time.Since(began))
		require.Equal(t, 1, s.Count(fault.Claim)-claims)
		require.EqualValues(t, 1, refused.Load())
		require.Contains(t, logged.String(), "class=seal")
		require.Contains(t, logged.String(), `do="Do what the error says`)
		require.NotContains(t, logged.String(), "Check the store", "which does answer")
		require.NotContains(t, logged.String(), key)
	})
}

func TestStoresNoPlaintext(t *testing.T) {
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
			inner := &watchedStore{Store: memstore.New()}
			s := sealed.New(inner, tt.aead)
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
			must.Entry(t)(s.Claim(t.Context(), "k", lock.Claim{Token: "a", Lease: time.Minute}))
			for range 2 {
				must.Yes(t)(s.Settle(t.Context(), "k", lock.Claim{Token: "a"}, []byte(marker), keep))
				check()
			}
			require.Len(t, distinct, 102, "a nonce was used twice")
		})
	}
}

func TestEmptyReceipts(t *testing.T) {
	t.Parallel()
	inner := memstore.New()
	s := sealed.New(inner, gcm(t, 1))
	l := fault.Locker(t, s)
	lease := must.Get(l.Acquire(t.Context(), "user=42"))(t)
	require.NoError(t, lease.Settle(t.Context(), nil, keep))
	_, err := l.Acquire(t.Context(), "user=42")
	require.ErrorIs(t, err, lock.ErrSettled)
	e := must.Entry(t)(s.Get(t.Context(), "user=42"))
	require.Nil(t, e.Receipt)
	e = must.Entry(t)(inner.Get(t.Context(), "user=42"))
	require.Len(t, e.Receipt, 32)

	// An answer cannot be made an empty one.
	onceOver(t, s, key, "answer")
	overwrite(t, inner, key, e.Token, e.Receipt)
	requireFailsClosed(t, s, key, "seal")
}

func TestPassesFailuresOn(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	s := sealed.New(fault.New().Every(func(context.Context, func() error) error { return down }), gcm(t, 1))
	_, err := s.Claim(t.Context(), "k", lock.Claim{Token: "a", Lease: time.Minute})
	require.Equal(t, down, err)
	_, err = s.Get(t.Context(), "k")
	require.Equal(t, down, err)
	_, err = s.Settle(t.Context(), "k", lock.Claim{Token: "a"}, nil, keep)
	require.Equal(t, down, err)
}

func TestHasWhatItsStoreHas(t *testing.T) {
	t.Parallel()
	refuses := errors.New("no fences")
	for name, tt := range map[string]struct {
		inner lock.Store
		about lock.Description
		lists bool
	}{
		"memory":           {memstore.New(), lock.Description{MaxLag: 1, Drift: 0.01, Local: true}, true},
		"sealed twice":     {sealed.New(memstore.New(), gcm(t, 9)), lock.Description{MaxLag: 1, Drift: 0.01, Local: true}, true},
		"the five methods": {struct{ lock.Store }{memstore.New()}, lock.Description{MaxLag: 2 * time.Minute, Drift: 0.01}, false},
		"a lag of its own": {fault.New(), lock.Description{MaxLag: 5 * time.Second, Drift: 0.01}, false},
		"other clocks":     {described{memstore.New(), lock.Description{MaxLag: 1, Drift: 0.2, NoFences: refuses}}, lock.Description{MaxLag: 1, Drift: 0.2, NoFences: refuses}, false},
	} {
		t.Run(name, func(t *testing.T) {
			stacks := &stackAEAD{AEAD: gcm(t, 1)}
			s := sealed.New(tt.inner, stacks)
			tt.about.NoTransactions = lock.Describe(memstore.New()).NoTransactions
			if _, amends := tt.inner.(lock.Amender); !amends {
				tt.about.NoAmends = lock.Describe(tt.inner).NoAmends
				require.ErrorIs(t, tt.about.NoAmends, errors.ErrUnsupported)
			}
			require.Equal(t, tt.about, lock.Describe(s))

			// The calls of a store that never waits are made without package send.
			onceOver(t, s, key, "answer")
			require.Equal(t, tt.about.Local, !bytes.Contains(stacks.seen, []byte("lock/internal/send.")))

			about := lock.Describe(s)
			require.Equal(t, tt.about.Local, about.Entries > 0)
			require.Equal(t, tt.about.Local, about.Bytes > 0)
			for _, err := range inspector(t, s).List(t.Context()) {
				if tt.lists {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, errors.ErrUnsupported)
				}
			}
			_, err := inspector(t, s).Forget(t.Context(), key, "token")
			require.Equal(t, tt.lists, err == nil, "%v", err)
			_, _, err = inspector(t, s).Page(t.Context(), "", 1, nil)
			require.Equal(t, tt.lists, err == nil, "%v", err)
		})
	}
}

func TestNewSealedPanics(t *testing.T) {
	t.Parallel()
	s, a := memstore.New(), gcm(t, 1)
	locks := described{s, lock.Description{NoReceipts: errors.New("no receipts")}}
	require.PanicsWithValue(t, "sealed: there is nothing to seal: no receipts", func() { sealed.New(locks, a) })
	require.PanicsWithValue(t, "sealed: nil Store", func() { sealed.New(nil, a) })
	require.PanicsWithValue(t, "sealed: nil cipher.AEAD", func() { sealed.New(s, nil) })
	require.PanicsWithValue(t, "sealed: nil cipher.AEAD", func() { sealed.New(s, a, a, nil) })
	short := gcmWithNonce(t, 1, 8)
	require.PanicsWithValue(t, "sealed: nonces of 8 bytes are too short to be random, which takes at least 12", func() { sealed.New(s, short) })
	require.NotPanics(t, func() { sealed.New(s, a, short) }, "it only opens")
}

// The hints come from the store below. Without hints below there are none.
func TestHints(t *testing.T) {
	t.Parallel()
	hints := make(chan struct{}, 1)
	hints <- struct{}{}
	for below, has := range map[lock.Store]bool{hinting{memstore.New(), hints}: true, memstore.New(): false} {
		require.Equal(t, has, hint(t, sealed.New(below, gcm(t, 1))))
	}
}

func hint(t *testing.T, s lock.Store) (is bool) {
	t.Helper()
	watch := lock.Describe(s).Watch
	if watch == nil {
		return false
	}
	wake, stop := watch(key)
	defer stop()
	return len(wake) == 1
}

// A process with another key lists what is unfinished, and does not see the results of its steps.
func TestUnfinishedUnderAnotherKey(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	open := func(key byte) *lock.Locker {
		l := lock.New(sealed.New(memory, gcm(t, key)), lock.WithLogger(quiet))
		t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
		return l
	}
	own, other := open(1), open(2)
	failed := errors.New("failed")
	_, _, err := own.Once(t.Context(), key, nil, func(ctx context.Context) ([]byte, error) {
		_, err := lock.Step(ctx, "charge", func(context.Context) ([]byte, error) { return []byte("ch_1"), nil })
		return nil, errors.Join(err, failed)
	})
	require.ErrorIs(t, err, failed)
	for l, result := range map[*lock.Locker]string{own: "ch_1", other: ""} {
		for u, err := range l.Unfinished(t.Context()) {
			require.NoError(t, err)
			require.True(t, u.Freed)
			require.Len(t, u.Steps, 1)
			require.Equal(t, "charge", u.Steps[0].Name)
			require.Equal(t, result, string(u.Steps[0].Result))
			require.Equal(t, l == own, u.Steps[0].Done)
		}
		require.Equal(t, 1, l.Stats().Unfinished)
	}
}
