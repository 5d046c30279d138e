package faults_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// ordeal is a fault that two processes go through at once.
type ordeal struct {
	server *redistest.Server
	here   *lock.Locker
	there  *lock.Locker
	fault  func() (over func())
	// claim is the error of a claim of here during the fault: ErrUnknown, or ErrUnavailable for a
	// claim that certainly was not applied.
	claim error
	reads bool // the server refuses writes only

	observed struct{ fault, calls, notified, again, others time.Duration } // for the report
}

// newOrdeal: here has a store that Open has made, there one over a client as
// its users make it.
func newOrdeal(t *testing.T, server *redistest.Server, addr string, claim error, fault func() (over func())) *ordeal {
	t.Helper()
	return &ordeal{
		server: server,
		here:   process(t, open(t, "redis://"+addr)),
		there:  process(t, overClient(t, addr)),
		fault:  fault,
		claim:  claim,
	}
}

func overClient(t *testing.T, addr string) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return redisstore.New(client)
}

// begun is the work in progress when the fault begins.
type begun struct {
	long, freed *lock.Lease
	brief       *doomed
	run         *startedRun
}

// pass says which promise was broken on the way through the fault, if any.
func (o *ordeal) pass(t *testing.T) error {
	t.Helper()
	b := o.prepare(t)
	over := o.fault()
	began := time.Now()
	err := o.during(t, b)
	o.observed.fault = time.Since(began)
	over()
	if err != nil {
		return fmt.Errorf("during the fault: %w", err)
	}
	if err := o.after(t, b); err != nil {
		return fmt.Errorf("after the fault: %w", err)
	}
	for _, name := range o.server.Keys(t, "latch:once:*") {
		o.server.Do(t, "DEL", name) // receipts stay, as they should
	}
	return left(t, o.server, soon)
}

func (o *ordeal) prepare(t *testing.T) begun {
	t.Helper()
	b := begun{long: acquired(t, o.here, "user=long"), freed: acquired(t, o.here, "user=freed"), run: startRun(t, o.here)}
	b.brief = doom(t, acquired(t, o.here.With(lock.WithLease(shortLease)), "user=brief"))
	return b
}

// requirePass is [ordeal.pass] as a test.
func (o *ordeal) requirePass(t *testing.T) {
	t.Helper()
	require.NoError(t, o.pass(t))
	o.report(t)
}

// errClass: a claim failed as it may on a busy machine, if not every time.
var errClass = errors.New("a claim of another class")

// requireOnePass is [ordeal.requirePass] of the first ordeal that met its fault with the
// connections that it had.
func requireOnePass(t *testing.T, start func() *ordeal) {
	t.Helper()
	for try := 0; ; try++ {
		o := start()
		err := o.pass(t)
		if errors.Is(err, errClass) && try < 3 {
			t.Logf("once more: %v", err)
			continue
		}
		require.NoError(t, err)
		o.report(t)
		return
	}
}

func (o *ordeal) report(t *testing.T) {
	t.Helper()
	at := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	t.Logf("calls took at most %v (budget %v), a lease of %v was over after %v; after the fault its process was served within %v, all within %v",
		at(o.observed.calls), budget, shortLease, at(o.observed.notified), at(o.observed.again), at(o.observed.others))
}

// during makes every kind of call, and then waits for the lease that cannot be
// renewed.
func (o *ordeal) during(t *testing.T, b begun) error {
	t.Helper()
	if err := o.classified(t); err != nil {
		return err
	}
	calls := map[string]func() error{
		"a claim over the other client": func() error {
			_, err := o.there.Acquire(t.Context(), "user=other")
			return unavailable(err)
		},
		"a claim of what is held": func() error {
			_, err := o.there.Acquire(t.Context(), "user=long")
			return o.taken(err)
		},
		"a run": func() error {
			_, _, err := o.there.Once(t.Context(), "order", nil, func(context.Context) ([]byte, error) {
				b.run.runs.Add(1)
				return nil, nil
			})
			return o.taken(err)
		},
		"a release": func() error {
			return unavailable(b.freed.Release(t.Context()))
		},
		"the end of a run": func() error {
			b.run.end()
			<-b.run.done
			if b.run.err != nil || string(b.run.receipt) != runAnswer {
				return fmt.Errorf("work that ran has an answer: %q, %w", b.run.receipt, wrong(b.run.err))
			}
			return nil
		},
	}
	longest, err := allWithin(calls)
	if err != nil {
		return err
	}
	o.observed.calls = max(o.observed.calls, longest)
	if o.observed.notified, err = b.brief.wasNotified(); err != nil {
		return err
	}
	if b.long.Context().Err() != nil {
		return fmt.Errorf("a lease that has long to go was given up: %w", context.Cause(b.long.Context()))
	}
	return nil
}

// taken is nil for what a claim of a key that is held has to end with: the server may write
// nothing, and still say so.
func (o *ordeal) taken(err error) error {
	switch {
	case !o.reads:
		return unavailable(err)
	case errors.Is(err, lock.ErrHeld):
		return nil
	}
	return fmt.Errorf("not %q: %w", lock.ErrHeld.Error(), wrong(err))
}

// classified makes a claim alone, so that it has the connection of the calls
// before the fault: on a new one the handshake would fail, which is certain to
// have applied nothing.
//
// A claim that was refused all the time is of unknown outcome if its last
// repetition had no answer yet when its time was over. That can happen, but not
// always.
func (o *ordeal) classified(t *testing.T) error {
	t.Helper()
	for try := 0; ; try++ {
		var err error
		longest, late := allWithin(map[string]func() error{"a claim": func() error {
			_, err = o.here.Acquire(t.Context(), "user=new")
			return unavailable(err)
		}})
		if late != nil {
			return late
		}
		o.observed.calls = max(o.observed.calls, longest)
		switch {
		case isUnknown(err) == isUnknown(o.claim):
			return nil
		case try == 5: // a busy machine may not even send a claim
			return fmt.Errorf("%w: not %q: %w", errClass, o.claim.Error(), err)
		}
	}
}

// after: first the process that met the fault gets everything it wants, and is
// never refused by what it did itself; then others do.
func (o *ordeal) after(t *testing.T, b begun) error {
	t.Helper()
	calm := time.Now()
	for _, key := range []string{"user=new", "user=freed", "user=brief"} {
		if err := serves(t, o.here, key, calm, true); err != nil {
			return fmt.Errorf("%s in the process that met the fault: %w", key, err)
		}
	}
	o.observed.again = time.Since(calm)
	for _, key := range []string{"user=other", "user=new", "user=freed", "user=brief"} {
		if err := serves(t, o.there, key, calm, key == "user=other"); err != nil {
			return fmt.Errorf("%s in the other process: %w", key, err)
		}
	}
	o.observed.others = time.Since(calm)
	refused(t, o.there, "user=long")
	lives(t, b.long)
	return b.run.replays(t, calm, o.there, o.here)
}

// startedRun is the work of a Once that is to end during the fault.
type startedRun struct {
	runs    atomic.Int64
	finish  chan struct{}
	end     func() // closes finish
	receipt []byte
	err     error
	done    chan struct{}
}

const runAnswer = "the first answer"

// startRun returns when the work runs.
func startRun(t *testing.T, l *lock.Locker) *startedRun {
	t.Helper()
	r := &startedRun{finish: make(chan struct{}), done: make(chan struct{})}
	r.end = sync.OnceFunc(func() { close(r.finish) })
	t.Cleanup(r.end)
	go func() {
		defer close(r.done)
		for r.runs.Load() == 0 && t.Context().Err() == nil { // a busy machine may not serve the first claim
			r.receipt, _, r.err = l.Once(context.WithoutCancel(t.Context()), "order", nil, func(context.Context) ([]byte, error) {
				r.runs.Add(1)
				<-r.finish
				return []byte(runAnswer), nil
			})
		}
	}()
	until(t, func() bool { return r.runs.Load() > 0 })
	return r
}

// replays: a caller that asks now gets the answer of the work that ran.
func (r *startedRun) replays(t *testing.T, calm time.Time, lockers ...*lock.Locker) error {
	t.Helper()
	for _, l := range lockers {
		for {
			receipt, _, err := l.Once(t.Context(), "order", nil, func(context.Context) ([]byte, error) {
				r.runs.Add(1)
				return nil, nil
			})
			if err == nil && string(receipt) == runAnswer && r.runs.Load() == 1 {
				break
			}
			if err == nil || time.Since(calm) > soon {
				return fmt.Errorf("a repeat of what has run %d times got %q: %w", r.runs.Load(), receipt, wrong(err))
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}
