package lock_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

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

// direct is an unchanged store of package fault: its calls are made on the Locker's goroutines, and
// return when their contexts end, except for stuck ones. The calls of apart are made on separate
// goroutines, and are left behind at the end.
func direct(s *fault.Store) lock.Store { return s }
func apart(s *fault.Store) lock.Store  { return fault.Apart(s) }

// bubble runs a test in virtual time, over a store behind a network, and ends
// by closing the lockers and checking that key has no owner. It runs the test twice: with each call
// on its own goroutine, and with the first call on the caller's goroutine.
func bubble(t *testing.T, run func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	for name, as := range map[string]func(*fault.Store) lock.Store{"apart": apart, "direct": direct} {
		t.Run(name, func(t *testing.T) {
			t.Helper()
			bubbleOver(t, as, run)
		})
	}
}

// bubbleCase is bubble for one case of a test.
func bubbleCase(t *testing.T, name string, run func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { t.Helper(); bubble(t, run) })
}

// bubbleOverCase is bubbleOver for one case of a test.
func bubbleOverCase(t *testing.T, name string, as func(*fault.Store) lock.Store, run func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { t.Helper(); bubbleOver(t, as, run) })
}

func bubbleOver(t *testing.T, as func(*fault.Store) lock.Store, run func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := fault.New()
		var lockers []*lock.Locker
		run(t, s, func(opts ...lock.Option) *lock.Locker {
			opts = append([]lock.Option{lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithMaxHold(time.Minute)}, opts...)
			l := lock.New(as(s), opts...)
			lockers = append(lockers, l)
			return l
		})
		s.Every(nil)
		for _, l := range lockers {
			require.NoError(t, l.Close(t.Context()))
		}
		synctest.Wait()
	})
}

// lockerOver is closed when the test ends.
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

// acquired returns a lease on key, which is free.
func acquired(t *testing.T, l *lock.Locker, key string) *lock.Lease {
	t.Helper()
	e, err := l.Acquire(t.Context(), key)
	require.NoErrorf(t, err, "%s is free", key)
	return e
}

// granted requires that key is free.
func granted(t *testing.T, l *lock.Locker) {
	t.Helper()
	require.NoError(t, acquired(t, l, key).Release(t.Context()))
}

// heap is not for tests that are parallel.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
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

// crash runs work up to its middle in a Locker whose later calls never arrive.
func crash(t *testing.T, s *fault.Store, middle func(ctx context.Context), opts ...lock.Option) {
	t.Helper()
	opts = append([]lock.Option{lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithKeep(keep)}, opts...)
	l := lock.New(s, opts...)
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

// deadEnd: a dead process's commands do not exist.
var deadEnd fault.Func = func(context.Context, func() error) error { return errors.Join(lock.ErrNotApplied, errors.New("dead")) }
