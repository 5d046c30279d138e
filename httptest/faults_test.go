package latchtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// operation is one method of a store in a form that tables can use: the
// preparation, the call, and the check whether it was applied.
type operation struct {
	op      latchtest.Op
	prepare bool // the key is claimed before
	call    func(ctx context.Context, s lock.Store) error
	applied func(e lock.Entry) bool
}

var (
	claimOfA   = lock.Claim{Token: "a", Attempt: 1, Fingerprint: []byte("fingerprint"), Lease: time.Minute}
	operations = []operation{
		{latchtest.Claim, false, func(ctx context.Context, s lock.Store) error {
			return must.Err(s.Claim(ctx, "key", claimOfA))
		}, func(e lock.Entry) bool { return e.State == lock.Held && string(e.Fingerprint) == "fingerprint" }},
		{latchtest.Renew, true, func(ctx context.Context, s lock.Store) error {
			return must.Err(s.Renew(ctx, "key", lock.Claim{Token: "a", Lease: time.Hour}))
		}, func(e lock.Entry) bool { return e.Left > time.Minute }},
		{latchtest.Settle, true, func(ctx context.Context, s lock.Store) error {
			return must.Err(s.Settle(ctx, "key", lock.Claim{Token: "a"}, []byte("receipt"), time.Hour))
		}, func(e lock.Entry) bool { return e.State == lock.Settled && string(e.Receipt) == "receipt" }},
		{latchtest.Release, true, func(ctx context.Context, s lock.Store) error {
			return must.Err(s.Release(ctx, "key", lock.Claim{Token: "a"}))
		}, func(e lock.Entry) bool { return e.State == lock.Free }},
	}
)

// start returns a memory store on which the operation can be called.
func (o operation) start(t *testing.T) lock.Store {
	t.Helper()
	s := memstore.New()
	if o.prepare {
		must.Get(s.Claim(t.Context(), "key", claimOfA))(t)
	}
	return s
}

func (o operation) wasApplied(t *testing.T, s lock.Store) bool {
	t.Helper()
	return o.applied(must.Get(s.Get(context.WithoutCancel(t.Context()), "key"))(t))
}

func requireUnknown(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.NotErrorIs(t, err, lock.ErrNotApplied)
}

func TestLose(t *testing.T) {
	t.Parallel()
	for _, o := range operations {
		parallel.Run(t, "reply of "+string(o.op), func(t *testing.T) {
			s := o.start(t)
			requireUnknown(t, o.call(t.Context(), latchtest.LoseReply(s, o.op, 1)))
			require.True(t, o.wasApplied(t, s))
		})
		parallel.Run(t, "request of "+string(o.op), func(t *testing.T) {
			s := o.start(t)
			lossy := latchtest.LoseRequest(s, o.op, 2)
			requireUnknown(t, o.call(t.Context(), lossy))
			requireUnknown(t, o.call(t.Context(), lossy))
			require.False(t, o.wasApplied(t, s))
			require.NoError(t, o.call(t.Context(), lossy), "the third of two")
			require.True(t, o.wasApplied(t, s))
		})
		parallel.Run(t, "others than "+string(o.op), func(t *testing.T) {
			for _, other := range operations {
				if other.op != o.op {
					require.NoError(t, other.call(t.Context(), latchtest.LoseReply(other.start(t), o.op, 1)))
					require.NoError(t, other.call(t.Context(), latchtest.LoseRequest(other.start(t), o.op, 1)))
					require.NoError(t, other.call(t.Context(), latchtest.Stall(other.start(t), o.op, 1, time.Hour)))
				}
			}
		})
	}
}

func TestStall(t *testing.T) {
	t.Parallel()
	for _, o := range operations {
		for name, later := range map[string]time.Duration{
			"applied while its caller waits": time.Second,
			"applied when it has left":       4 * time.Second,
		} {
			parallel.Run(t, string(o.op)+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := o.start(t)
					stalling := latchtest.Stall(s, o.op, 1, later)
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					done := make(chan error)
					go func() { done <- o.call(ctx, stalling) }()

					time.Sleep(later - time.Nanosecond)
					require.False(t, o.wasApplied(t, s), "too early")
					if later > 2*time.Second {
						requireUnknown(t, <-done)
					}
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					require.True(t, o.wasApplied(t, s))
					if later < 2*time.Second {
						requireUnknown(t, <-done)
						require.Equal(t, 2*time.Second, time.Since(began))
					}
					require.NoError(t, o.call(t.Context(), stalling), "the second of one")
				})
			})
		}
	}
}

// Who made a stalled call may use its slices again before it is applied.
func TestStallCopies(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		s := memstore.New()
		stalling := latchtest.Stall(latchtest.Stall(s, latchtest.Claim, 1, time.Second), latchtest.Settle, 1, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		given := []byte("mine")
		_, err := stalling.Claim(ctx, "key", lock.Claim{Token: "a", Attempt: 1, Fingerprint: given, Lease: time.Minute})
		requireUnknown(t, err)
		copy(given, "gone")
		time.Sleep(2 * time.Second)
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		given = []byte("mine")
		_, err = stalling.Settle(ctx, "key", lock.Claim{Token: "a"}, given, time.Minute)
		requireUnknown(t, err)
		copy(given, "gone")
		time.Sleep(2 * time.Second)
		e := must.Get(s.Get(t.Context(), "key"))(t)
		require.Equal(t, "mine mine", string(e.Fingerprint)+" "+string(e.Receipt))
	})
}

// A call that is never sent has no reply to lose, and is certainly not applied.
func TestFaultsDoNotCountEndedContexts(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, o := range operations {
		for name, disturb := range faults(o.op) {
			parallel.Run(t, name+" "+string(o.op), func(t *testing.T) {
				disturbed := disturb(o.start(t))
				require.ErrorIs(t, o.call(ended, disturbed), lock.ErrNotApplied)
				requireUnknown(t, o.call(leaving(t), disturbed))
			})
		}
	}
}

// leaving is a context that ends once a caller waits for its end, and not before.
func leaving(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return whenAsked{ctx, cancel}
}

type whenAsked struct {
	context.Context //nolint:containedctx // it is one

	end func()
}

func (c whenAsked) Done() <-chan struct{} {
	c.end()
	return c.Context.Done()
}

// faults is each of them, for one call of op.
func faults(op latchtest.Op) map[string]func(lock.Store) lock.Store {
	return map[string]func(lock.Store) lock.Store{
		"LoseReply":   func(s lock.Store) lock.Store { return latchtest.LoseReply(s, op, 1) },
		"LoseRequest": func(s lock.Store) lock.Store { return latchtest.LoseRequest(s, op, 1) },
		"Stall":       func(s lock.Store) lock.Store { return latchtest.Stall(s, op, 1, time.Second) },
	}
}

// The outermost fault comes first. Faults within do not count a call that it lost.
func TestFaultsNest(t *testing.T) {
	t.Parallel()
	claim := operations[0]
	s := memstore.New()
	lossy := latchtest.LoseRequest(latchtest.LoseReply(s, latchtest.Claim, 1), latchtest.Claim, 1)
	requireUnknown(t, claim.call(t.Context(), lossy))
	require.False(t, claim.wasApplied(t, s), "the request was lost first")
	requireUnknown(t, claim.call(t.Context(), lossy))
	require.True(t, claim.wasApplied(t, s), "and then a reply")
	require.NoError(t, claim.call(t.Context(), lossy))

	s = memstore.New()
	lossy = latchtest.LoseReply(latchtest.LoseRequest(s, latchtest.Claim, 1), latchtest.Claim, 1)
	requireUnknown(t, claim.call(t.Context(), lossy))
	require.False(t, claim.wasApplied(t, s), "both at once")
	require.NoError(t, claim.call(t.Context(), lossy))
}

// After its faults a store is as good as the one within.
func TestFaultsKeepTheRules(t *testing.T) {
	t.Parallel()
	var lossy lock.Store = memstore.New()
	for _, o := range operations {
		for _, disturb := range faults(o.op) {
			lossy = disturb(lossy)
		}
	}
	for _, o := range operations {
		for range faults(o.op) {
			_ = o.call(leaving(t), lossy)
		}
	}
	time.Sleep(1100 * time.Millisecond) // longer than the stall
	for _, o := range operations[1:] {
		require.NoError(t, o.call(t.Context(), lossy), "all faults are over")
	}
	latchtest.TestStore(t, 20*time.Millisecond, func(*testing.T) lock.Store { return lossy })
}

func TestFaultsForward(t *testing.T) {
	t.Parallel()
	maxLag := func(s lock.Store) time.Duration { return lock.Describe(s).MaxLag.Round(time.Second) }
	for name, disturb := range faults(latchtest.Claim) {
		overMemory, overBare := disturb(memstore.New()), disturb(bare{memstore.New()})
		require.Implements(t, (*lock.Inspector)(nil), overMemory, name)
		require.NotImplements(t, (*lock.Inspector)(nil), overBare, name)
		own := time.Duration(0)
		if name == "Stall" {
			own = 2 * time.Second
		}
		require.Equal(t, own, maxLag(overMemory), name)
		require.Equal(t, 2*time.Minute+own, maxLag(overBare), name)
		require.Equal(t, own+2*time.Second, maxLag(latchtest.Stall(overMemory, latchtest.Renew, 1, time.Second)), name)
	}
}

func TestFaultsPanic(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	for name, f := range map[string]func(){
		"latchtest: LoseReply of a nil lock.Store":                                   func() { latchtest.LoseReply(nil, latchtest.Claim, 1) },
		"latchtest: LoseReply of 0 calls: at least one has to fail":                  func() { latchtest.LoseReply(s, latchtest.Claim, 0) },
		`latchtest: LoseReply of "get": not one of claim, renew, settle and release`: func() { latchtest.LoseReply(s, "get", 1) },
		"latchtest: LoseRequest of a nil lock.Store":                                 func() { latchtest.LoseRequest(nil, latchtest.Claim, 1) },
		"latchtest: Stall of a nil lock.Store":                                       func() { latchtest.Stall(nil, latchtest.Claim, 1, time.Second) },
		"latchtest: Stall for 0s: it takes some time":                                func() { latchtest.Stall(s, latchtest.Claim, 1, 0) },
	} {
		require.PanicsWithValue(t, name, f)
	}
}

// A commit that is lost has the outcome that it had.
func TestFaultsOfACommit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		disturb func(s lock.Store) lock.Store
		effects []string
	}{
		"reply":   {func(s lock.Store) lock.Store { return latchtest.LoseReply(s, latchtest.Settle, 1) }, []string{"row"}},
		"request": {func(s lock.Store) lock.Store { return latchtest.LoseRequest(s, latchtest.Settle, 1) }, nil},
		"stall":   {func(s lock.Store) lock.Store { return latchtest.Stall(s, latchtest.Settle, 1, 3*time.Second) }, nil},
		"in time": {func(s lock.Store) lock.Store { return latchtest.Stall(s, latchtest.Settle, 1, 10*time.Millisecond) }, []string{"row"}},
		"nested": {func(s lock.Store) lock.Store {
			return latchtest.LoseReply(latchtest.LoseRequest(s, latchtest.Release, 1), latchtest.Settle, 1)
		}, []string{"row"}},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				truth := faketx.New()
				l := lock.New(tt.disturb(truth), lock.WithLogger(quiet), lock.WithTransaction())
				place := func(ctx context.Context) ([]byte, error) { return []byte("answer"), faketx.Insert(ctx, "row") }
				receipt, _, err := l.Once(t.Context(), "key", nil, place)
				if tt.effects == nil {
					require.ErrorIs(t, err, lock.ErrUnavailable)
				} else {
					require.NoError(t, err)
					require.Equal(t, "answer", string(receipt))
				}
				time.Sleep(10 * time.Second)
				require.Equal(t, tt.effects, truth.Effects())
				_, replayed, err := l.Once(t.Context(), "key", nil, place)
				require.NoError(t, err)
				require.Equal(t, tt.effects != nil, replayed)
				require.Equal(t, []string{"row"}, truth.Effects())
				require.NoError(t, l.Close(t.Context()))
				require.Zero(t, truth.Open())
			})
		})
	}
	require.ErrorContains(t, lock.Describe(latchtest.LoseReply(memstore.New(), latchtest.Settle, 1)).NoTransactions, "no Transactor")
}
