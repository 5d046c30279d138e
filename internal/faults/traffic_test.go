package faults_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

const (
	// trafficLease is the lease of the callers below: long enough that a busy machine does not end
	// one by itself, short enough to wait for.
	trafficLease = 6 * time.Second
	// ampleBudget is a budget within which a busy machine answers too.
	ampleBudget = 3 * time.Second
)

// witness remembers which tokens a server has acknowledged the end of. What it
// has acknowledged it may lose, if another takes its place.
type witness struct {
	*redisstore.Store

	mu    sync.Mutex
	freed map[string]bool
}

func newWitness(s *redisstore.Store) *witness {
	return &witness{Store: s, freed: make(map[string]bool)}
}

func (w *witness) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	ok, err := w.Store.Release(ctx, key, c)
	if ok && err == nil {
		w.mu.Lock()
		w.freed[c.Token] = true
		w.mu.Unlock()
	}
	return ok, err
}

func (w *witness) hasFreed(token string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.freed[token]
}

// caller is a process with a client of one kind.
type caller struct {
	client string
	budget time.Duration
	store  *witness
	locker *lock.Locker
	keys   int // that have no other caller
}

func newCaller(t *testing.T, client string, store *redisstore.Store, budget time.Duration) *caller {
	t.Helper()
	w := newWitness(store)
	l := locker(t, w, lock.WithLease(trafficLease), lock.WithBudget(budget))
	return &caller{client: client, budget: budget, store: w, locker: l}
}

// traffic is callers that take and free keys while servers fail or slots move.
type traffic struct {
	once sync.Once
	stop chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex
	ops    []op
	faults []string
}

// op is one call and what became of it.
type op struct {
	client, key  string
	began, ended time.Time
	outcome      string // "" for success
	excused      bool   // it may have that outcome at any time
}

func (o op) took() time.Duration { return o.ended.Sub(o.began) }

func newTraffic(t *testing.T) *traffic {
	t.Helper()
	tr := &traffic{stop: make(chan struct{})}
	t.Cleanup(tr.end) // of a test that fails
	return tr
}

// end stops all callers.
func (tr *traffic) end() {
	tr.once.Do(func() { close(tr.stop) })
	tr.wg.Wait()
}

// each runs step until the end, with pauses.
func (tr *traffic) each(step func()) {
	tr.wg.Go(func() {
		pause := time.NewTicker(5 * time.Millisecond)
		defer pause.Stop()
		for {
			step()
			select {
			case <-tr.stop:
				return
			case <-pause.C:
			}
		}
	})
}

// flow waits until so many more calls of the only caller of a key have ended.
func (tr *traffic) flow(t *testing.T, calls int) {
	t.Helper()
	count := func() int {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return len(tr.ops)
	}
	calls += count()
	until(t, func() bool { return count() >= calls })
}

func (tr *traffic) fault(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.faults = append(tr.faults, fmt.Sprintf(format, args...))
}

// own takes and frees a key that has no other caller, so that only an entry of
// c itself can refuse it.
func (tr *traffic) own(c *caller, key string) {
	c.keys++
	tr.each(func() {
		began := time.Now()
		e, err := c.locker.Acquire(context.Background(), key)
		tr.book(c, key, began, err)
		if err != nil {
			return
		}
		began = time.Now()
		tr.book(c, key, began, e.Release(context.Background()))
	})
}

// denied asks for a key that another caller holds all the time.
func (tr *traffic) denied(c *caller, key string) {
	tr.each(func() {
		began := time.Now()
		e, err := c.locker.Acquire(context.Background(), key)
		if err == nil {
			tr.fault("one-holder: %s is granted to a second holder", key)
			_ = e.Release(context.Background())
		}
		if !errors.Is(err, lock.ErrHeld) {
			tr.book(c, key, began, err)
		}
	})
}

// book classifies what a call of the only caller of key ended in.
func (tr *traffic) book(c *caller, key string, began time.Time, err error) {
	o := op{client: c.client, key: key, began: began, ended: time.Now()}
	if refused := (*lock.RefusedError)(nil); errors.As(err, &refused) {
		// A release that was acknowledged and then lost with its server keeps the
		// key for a lease.
		o.outcome, o.excused = "held by a lease that was released", true
		if !c.store.hasFreed(refused.Entry.Token) {
			tr.fault("no-self-conflict: %s is refused, and has no other caller: %v, %+v", key, err, refused.Entry)
		}
	} else if err != nil {
		o.outcome, o.excused = tr.classify(key, err)
	}
	if o.took() > c.budget+slack {
		tr.fault("bounded: a call for %s took %v: %v", key, o.took(), err)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.ops = append(tr.ops, o)
}

func (tr *traffic) classify(key string, err error) (outcome string, excused bool) {
	class := "another call unanswered"
	if c := interface{ Class() string }(nil); errors.As(err, &c) {
		class = c.Class()
	}
	switch {
	case errors.Is(err, lock.ErrLost):
		return "lost", false
	case errors.Is(err, lock.ErrUnknown):
		outcome = "unknown: " + class
	case errors.Is(err, lock.ErrUnavailable):
		outcome = "unavailable: " + class
	default:
		tr.fault("three outcomes: a call for %s ended in %v", key, err)
	}
	switch class {
	case "silent", "handshake", "another call unanswered":
		excused = true // on a machine that is busy for a budget
	}
	return outcome, excused
}

// failures are all calls that failed, and what else was wrong.
func (tr *traffic) failures() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	found := slices.Clone(tr.faults)
	for _, o := range tr.ops {
		if o.outcome != "" {
			found = append(found, fmt.Sprintf("%s: %s after %v", o.key, o.outcome, o.took()))
		}
	}
	return found
}

// violations are the calls that must not have ended as they did: outside of the
// window between two times nothing fails, except for what a busy machine does.
func (tr *traffic) violations(from, to time.Time) []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	found := slices.Clone(tr.faults)
	for _, o := range tr.ops {
		if o.outcome != "" && !o.excused && (o.ended.Before(from) || o.began.After(to)) {
			found = append(found, fmt.Sprintf("outside of the window: %s, %v after its begin", o.outcome, o.began.Sub(from)))
		}
	}
	return found
}

// recover waits until every key that has only one caller was served again since
// a time, and traffic flows.
func (tr *traffic) recover(t *testing.T, since time.Time, callers []*caller) {
	t.Helper()
	for _, c := range callers {
		until(t, func() bool { return tr.served(c, since) == c.keys })
	}
	tr.flow(t, 200)
}

// survives kills a master, and requires that calls fail until promoted returns, and for a while
// afterwards, and at no other time. A lease outlives its server.
func (tr *traffic) survives(t *testing.T, callers []*caller, held *lock.Lease, master *redistest.Server, promoted func()) {
	t.Helper()
	const settling = 3 * time.Second // in which a client may still call the old master
	killed := time.Now()
	master.Kill()
	promoted()
	known := time.Now()
	tr.recover(t, known, callers)
	tr.end()
	require.NotEmpty(t, tr.failures(), "the master was not missed")
	require.Empty(t, tr.violations(killed, known.Add(settling)))
	lives(t, held)
	t.Logf("the new master is known %v after the kill", known.Sub(killed).Round(time.Millisecond))
}

// served returns the number of keys that c was served with since a time.
func (tr *traffic) served(c *caller, since time.Time) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	keys := make(map[string]bool)
	for _, o := range tr.ops {
		if o.client == c.client && o.outcome == "" && o.began.After(since) {
			keys[o.key] = true
		}
	}
	return len(keys)
}

// awaitDials waits, when t is over, until go-redis has noticed that clients of a
// server that is gone were closed: it looks once a second.
func awaitDials(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		stacks := make([]byte, 4<<20)
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*ConnPool).tryDial")) {
				return
			}
		}
	})
}

// The twin of what is found at keys that only one caller wants: one that reads a lost reply as
// a refusal. It is refused by itself, for as long as its dead claim lasts.
func TestTrafficCatches(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "checks the test of traffic with a planted fault")
	t.Parallel()
	server := redistest.Start(t)
	proxy := respproxy.Start(t, server.Addr())
	w := newWitness(open(t, proxy.URL()))
	c := &caller{client: "naive", budget: ampleBudget, store: w, locker: locker(t, naiveClaim{w}, lock.WithLease(trafficLease), lock.WithBudget(ampleBudget))}
	tr := newTraffic(t)
	tr.own(c, "user=own")
	tr.flow(t, 10)
	require.Empty(t, tr.failures())

	lost := time.Now()
	proxy.On(respproxy.Match{Name: claims, Key: "user=own", Count: 1}, respproxy.Swallow(respproxy.Close))
	until(t, func() bool { return len(tr.violations(lost, lost)) > 0 })
	tr.end()
	found := strings.Join(tr.violations(lost, lost), "\n")
	require.Contains(t, found, "no-self-conflict: user=own is refused, and has no other caller")
}
