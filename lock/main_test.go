package lock_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

func TestMain(m *testing.M) {
	testmain.AtOnce(4)
	goleak.VerifyTestMain(m)
}

const (
	key    = "user=42"
	lease  = 3 * time.Second
	budget = 300 * time.Millisecond

	// validity is for how long a holder relies on a lease that is not renewed.
	validity = lease - lease/100 - 2*time.Millisecond
)

var quiet = slog.New(slog.DiscardHandler)

// The calls of direct are made on the Locker's goroutines, and return when their contexts end, except for stuck
// ones. The calls of apart are made on separate goroutines, and are left behind at the end.
func direct(s *fault.Store) lock.Store { return s }
func apart(s *fault.Store) lock.Store  { return fault.Apart(s) }

// bubble runs a test in virtual time, over a store behind a network, and ends
// by closing the lockers and checking that key has no owner. It runs the test twice, at the same time: with each
// call on its own goroutine, and with the first call on the caller's goroutine.
func bubble(t *testing.T, run func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	for name, as := range map[string]func(*fault.Store) lock.Store{"apart": apart, "direct": direct} {
		parallel.Run(t, name, func(t *testing.T) { t.Helper(); bubbleOver(t, as, run) })
	}
}

// solo is bubble for a test of one Locker.
func solo(t *testing.T, run func(t *testing.T, s *fault.Store, l *lock.Locker), opts ...lock.Option) {
	t.Helper()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		t.Helper()
		run(t, s, open(opts...))
	})
}

// bubbleCase is bubble for one case of a test.
func bubbleCase(t *testing.T, name string, run func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { t.Helper(); bubble(t, run) })
}

// bubbleOverCase is bubbleOver for one case of a test.
func bubbleOverCase(t *testing.T, name string, as func(*fault.Store) lock.Store, run func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	parallel.Run(t, name, func(t *testing.T) { t.Helper(); bubbleOver(t, as, run) })
}

// opener returns a function that opens Lockers over s, and one that closes them.
func opener(s lock.Store, defaults ...lock.Option) (open func(...lock.Option) *lock.Locker, closeAll func(t *testing.T)) {
	var lockers []*lock.Locker
	open = func(opts ...lock.Option) *lock.Locker {
		l := lock.New(s, slices.Concat(ofBubble, defaults, opts)...)
		lockers = append(lockers, l)
		return l
	}
	return open, func(t *testing.T) {
		t.Helper()
		for _, l := range lockers {
			require.NoError(t, l.Close(t.Context()))
		}
		synctest.Wait()
	}
}

// ofBubble are the options of the Lockers in a bubble.
var ofBubble = []lock.Option{lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithMaxHold(time.Minute)}

func bubbleOver(t *testing.T, as func(*fault.Store) lock.Store, run func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := fault.New()
		open, closeAll := opener(as(s))
		run(t, s, open)
		s.Every(nil)
		closeAll(t)
	})
}

// within is a context that ends after d, or with the test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// acquired returns a lease on key, which is free.
func acquired(t *testing.T, l *lock.Locker, key string) *lock.Lease {
	t.Helper()
	e, err := l.Acquire(t.Context(), key)
	require.NoErrorf(t, err, "%s is free", key)
	return e
}

// begun returns a run of key, which is free.
func begun(t *testing.T, l *lock.Locker, key string) *lock.Run {
	t.Helper()
	run, _, err := l.Begin(t.Context(), key, print1, nil)
	require.NoError(t, err)
	require.NotNil(t, run)
	return run
}

// ask returns the error of a request that must not run.
func ask(t *testing.T, l *lock.Locker, fingerprint []byte) error {
	t.Helper()
	_, _, err := l.Once(t.Context(), key, fingerprint, mustNotRun)
	return err
}

// requireGrant requires that key is free.
func requireGrant(t *testing.T, l *lock.Locker) {
	t.Helper()
	require.NoError(t, acquired(t, l, key).Release(t.Context()))
}

// record is the store key of the receipt of key.
var record = func() string {
	sum := sha256.Sum256([]byte(key))
	return "once:" + hex.EncodeToString(sum[:])
}()

const keep = time.Hour

var (
	print1 = []byte("request 1")
	print2 = []byte("request 2")
)

// effect is the work of these tests: it counts its runs.
type effect struct{ runs atomic.Int64 }

func (f *effect) run(answer string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		f.runs.Add(1)
		return []byte(answer), nil
	}
}

func (f *effect) fail(err error) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		f.runs.Add(1)
		return nil, err
	}
}

// startRun begins a run of key, and returns when its work waits.
func startRun(l *lock.Locker, work func(ctx context.Context) ([]byte, error)) {
	go func() { _, _, _ = l.Once(context.Background(), key, print1, work) }()
	synctest.Wait()
}

// crash runs work up to its middle in a Locker whose later calls never arrive.
func crash(t *testing.T, s *fault.Store, middle func(ctx context.Context), opts ...lock.Option) {
	t.Helper()
	l := lock.New(s, slices.Concat(ofBubble, []lock.Option{lock.WithKeep(keep)}, opts)...)
	gone := make(chan struct{})
	go func() {
		_, _, _ = l.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
			middle(ctx)
			s.Every(deadEnd, fault.Claim, fault.Settle, fault.Release, fault.Renew) // the process is dead: none of its later calls arrives
			close(gone)
			return nil, errors.New("never heard of")
		})
	}()
	<-gone
	synctest.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = l.Close(ctx)
	time.Sleep(2 * budget) // calls in flight land
	s.Every(nil, fault.Claim, fault.Settle, fault.Release, fault.Renew)
}

// abandoned leaves the record of key as a process does that vanishes in its run.
func abandoned(t *testing.T, s *fault.Store, opts ...lock.Option) {
	t.Helper()
	crash(t, s, func(context.Context) {}, opts...)
	time.Sleep(lease)
	require.Equal(t, lock.Abandoned, s.State(t, record).State)
}

// deadEnd: a dead process's commands do not exist.
var deadEnd fault.Func = func(context.Context, func() error) error { return errors.Join(lock.ErrNotApplied, errors.New("dead")) }

// plain hides the optional interfaces of a store.
type plain struct{ lock.Store }
