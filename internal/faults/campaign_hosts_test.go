package faults_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

const (
	campaignBudget = 250 * time.Millisecond
	campaignLease  = 1500 * time.Millisecond
	campaignHold   = 4 * campaignLease
	campaignSlack  = 2 * time.Second // what a machine that is busy with all of this may add
	campaignHosts  = 6
	campaignTime   = 3 * time.Minute // for a thousand faults; it takes a fraction of that
)

// Paths that a run must have taken at least once to mean anything.
const (
	recovered        = "recovered claim"
	reaped           = "reaped orphan"
	takenOver        = "takeover"
	refusedLate      = "refused late command"
	lostLease        = "lost lease"
	settledAfterward = "background settle"
)

var rarePaths = []string{recovered, reaped, takenOver, refusedLate, lostLease, settledAfterward}

// campaign is one run of it.
type campaign struct {
	t        *testing.T
	seed     uint64
	server   *redistest.Server
	direct   *redisstore.Store // without faults
	hosts    []*host
	book     *book
	injected once.Counts // faults that struck, by kind
	rare     once.Counts
	outcomes once.Counts
	took     time.Duration

	untilViolated []string // a twin's run ends with the first of these
	stop          chan struct{}
	working       sync.WaitGroup
	injecting     sync.WaitGroup
	runs          atomic.Int64 // numbers the keys of Once
	victims       atomic.Int64 // and those that a process dies in
}

// host is a process's worth of lockers over its own network.
type host struct {
	c       *campaign
	n       int
	proxy   *respproxy.Proxy
	locker  *lock.Locker
	guarded *lock.Locker
	rerun   *lock.Locker
}

// newCampaign starts the server and the hosts. planted, if not nil, breaks
// their stores.
func newCampaign(t *testing.T, seed uint64, planted func(lock.Store) lock.Store) *campaign {
	t.Helper()
	c := &campaign{t: t, seed: seed, book: newBook(), stop: make(chan struct{})}
	t.Cleanup(c.book.timers.stop)
	c.server = redistest.Start(t, append(redistest.DebugCommand(t), "--appendonly", "yes", "--appendfsync", "always", "--lua-time-limit", "50")...)
	c.direct = open(t, c.server.URL())
	for n := range campaignHosts {
		h := &host{c: c, n: n, proxy: respproxy.Start(t, c.server.Addr())}
		var store lock.Store
		if n%2 == 1 { // as its users make it: with retries, and without context timeouts
			store = overClient(t, h.proxy.Addr())
		} else {
			store = open(t, h.proxy.URL())
		}
		if planted != nil {
			store = planted(store)
		}
		h.locker = lock.New(store, lock.WithLogger(quiet), lock.WithBudget(campaignBudget), lock.WithLease(campaignLease),
			lock.WithMaxHold(campaignHold), lock.WithKeep(time.Hour), lock.WithObserver(h.observe))
		h.guarded = h.locker.With(lock.WithFencing())
		h.rerun = h.locker.With(lock.WithRerunAbandoned())
		c.hosts = append(c.hosts, h)
	}
	return c
}

func (h *host) observe(_ context.Context, e lock.Event) {
	b, rare := h.c.book, &h.c.rare
	switch e.Kind {
	case lock.EventClaimed, lock.EventRecovered, lock.EventTakenOver:
		if e.Attempt > 1 {
			rare.Add(takenOver)
			b.mu.Lock()
			b.taken[e.Key]++
			b.mu.Unlock()
		}
	default:
	}
	switch e.Kind {
	case lock.EventRecovered:
		rare.Add(recovered)
	case lock.EventReaped:
		rare.Add(reaped)
	case lock.EventLost:
		rare.Add(lostLease)
	case lock.EventRenewed:
		b.mu.Lock()
		b.renewed[e.Key] = time.Now()
		b.mu.Unlock()
	case lock.EventSettled:
		b.mu.Lock()
		answered := b.replied[e.Key]
		b.mu.Unlock()
		if answered {
			rare.Add(settledAfterward)
		}
	default:
	}
}

// run works and injects until so many faults have struck, and every rare path
// has been taken.
func (c *campaign) run(faults int) {
	began := time.Now()
	patience := campaignTime * time.Duration(max(faults, 1000)) / 1000
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	for _, h := range c.hosts {
		for i, work := range []func(context.Context, *rand.Rand){
			h.lock("user"), h.lock("user"), h.lock("user"), h.lock("guarded"), h.lock("guarded"), h.lockOwn("user"), h.lockOwn("guarded"),
			h.runOnce, h.runOnce, h.runAgain,
		} {
			plan := rand.New(rand.NewPCG(c.seed, uint64(100*h.n+i)))
			c.working.Go(func() {
				for !c.stopped() {
					work(ctx, plan)
				}
			})
		}
		c.injecting.Go(func() { h.inject() })
	}
	c.injectUntil(began.Add(patience), faults)
	close(c.stop)
	c.injecting.Wait()
	for _, h := range c.hosts {
		h.proxy.Clear()
	}
	c.working.Wait()
	c.took = time.Since(began)
}

// injectUntil strikes the server until there were enough faults, or time is over. It does so on the
// test's goroutine, since a server that does not start again ends the test.
func (c *campaign) injectUntil(last time.Time, faults int) {
	plan := rand.New(rand.NewPCG(c.seed, 1000))
	for began := time.Now(); !c.enough(faults); {
		if time.Now().After(last) {
			c.t.Errorf("only %d faults within %v", c.injected.Total(), time.Since(began))
			return
		}
		c.injectIntoServer(plan)
	}
}

func (c *campaign) stopped() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

func (c *campaign) enough(faults int) bool {
	if c.untilViolated != nil {
		return c.caught() || c.injected.Total() >= faults
	}
	missing := slices.ContainsFunc(rarePaths, func(path string) bool { return c.rare.Get(path) == 0 })
	return c.injected.Total() >= faults && !missing && len(c.seldomStruck()) == 0
}

// seldomStruck returns the kinds of commands that ten faults at most have struck. If a command of
// the store gets another form, only the first questions of a store still look like it.
func (c *campaign) seldomStruck() (kinds []string) {
	struck := make(map[string]int)
	for _, f := range commandFaults {
		kind, _, _ := strings.Cut(f.name, ":")
		struck[kind] += c.injected.Get(f.name)
	}
	for kind, n := range struck {
		if n <= 10 {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// countRefused counts the claims that rule has held until they were refused for being late.
func (c *campaign) countRefused(rule *respproxy.Rule) {
	for _, answer := range rule.Answers(c.t) {
		if strings.HasPrefix(string(answer), "*2\r\n:-1\r\n") {
			c.rare.Add(refusedLate)
		}
	}
}

// caught reports whether a violation that a twin must lead to was found.
func (c *campaign) caught() bool {
	return slices.ContainsFunc(c.book.violations(), func(v string) bool {
		return slices.ContainsFunc(c.untilViolated, func(name string) bool { return strings.HasPrefix(v, name+":") })
	})
}

// rest checks what must be so when the faults are over.
func (c *campaign) rest() {
	calm := time.Now()
	for _, h := range c.hosts {
		for kind, l := range h.guards() {
			h.mustLock(l, h.ownKey(kind), calm, true)
			for i := range lockKeys {
				h.mustLock(l, sharedKey(kind, i), calm, false)
			}
		}
		h.finishRuns(calm)
	}
	c.close()
	for entry, err := range c.direct.List(c.t.Context()) {
		require.NoError(c.t, err)
		if entry.State != lock.Settled {
			c.book.violated(noOrphan, "at rest %s is %v by %s for %v", entry.Key, entry.State, entry.Token, entry.Left)
		}
	}
	for _, h := range c.hosts {
		h.proxy.Down()
	}
}

// close ends what the hosts do in the background.
func (c *campaign) close() {
	for _, h := range c.hosts {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		if err := h.locker.Close(ctx); err != nil {
			c.book.violated(bounded, "close: %v", err)
		}
		cancel()
	}
}

// mustLock takes key, which has no holder at work. One process may block another for a lease, and
// never itself.
func (h *host) mustLock(l *lock.Locker, key string, calm time.Time, own bool) {
	h.atLast(key, calm, campaignLease+campaignSlack, func() error {
		err := l.Do(context.Background(), key, func(context.Context) error { return nil })
		if own && isHeld(err) {
			h.c.book.violated(noSelfConflict, "at rest %s is refused by a claim of this process: %v", key, err)
			return nil
		}
		return err
	})
}

// atLast repeats a call until it succeeds. A refusal may last for the patience after calm, and a
// store that does not answer for as long after the first call: a busy machine may leave any one call
// without an answer, however late.
func (h *host) atLast(key string, calm time.Time, patience time.Duration, call func() error) {
	b := h.c.book
	late := b.timers.sum()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := call()
		if err == nil {
			return
		}
		from := calm
		if errors.Is(err, lock.ErrUnavailable) {
			from = began
		}
		if time.Since(from) > patience+b.timers.sum()-late {
			b.violated(noOrphan, "%s is not free long after the last fault: %v", key, err)
			return
		}
	}
}
