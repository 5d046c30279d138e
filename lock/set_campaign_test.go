package lock_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

var setFaults = flag.Int("sets.faults", 4000, "number of faults in the campaign of sets, permits and hand-overs; make faults makes 10000")

// setCampaign is work at random in three processes over one server, behind a network with
// faults: on sets of one to eight of 14 keys, on one to five permits, and on keys that are
// handed over to another process and delivered twice. Processes are killed and paused.
type setCampaign struct {
	plan   *rand.Rand
	server lock.Store
	hosts  []*setHost
	all    doAll
	slots  int // number of slots of a caller with a wrong number; 0: all callers have the right number

	mu      sync.Mutex
	holders map[string]map[*setHold]bool // by key, and by the name of a resource with permits
	count   map[string]int
	broken  map[string]string // by promise, the first case
}

// setHold is the work of one caller.
type setHold struct {
	ctx  context.Context //nolint:containedctx // whose end is the end of the work
	host *setHost
}

func (h *setHold) valid() bool { return h.host.alive() && h.ctx.Err() == nil }

// setHost is one process.
type setHost struct {
	*fault.Network
	locker *lock.Locker
	killed chan struct{}

	mu     sync.Mutex
	paused time.Time // until when no call leaves the process
}

func (h *setHost) alive() bool {
	select {
	case <-h.killed:
		return false
	default:
		return true
	}
}

// leave waits until a call can leave the process. It reports false if the process is dead.
func (h *setHost) leave(ctx context.Context) bool {
	h.mu.Lock()
	wait := time.Until(h.paused)
	h.mu.Unlock()
	if wait > 0 {
		fault.Sleep(ctx, wait)
	}
	return h.alive() && ctx.Err() == nil
}

func (h *setHost) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if !h.leave(ctx) {
		return lock.Entry{}, lock.ErrNotApplied
	}
	return h.Network.Claim(ctx, key, c)
}

func (h *setHost) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if !h.leave(ctx) {
		return false, lock.ErrNotApplied
	}
	return h.Network.Renew(ctx, key, c)
}

func (h *setHost) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if !h.leave(ctx) {
		return false, lock.ErrNotApplied
	}
	return h.Network.Release(ctx, key, c)
}

func (h *setHost) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
	if !h.leave(ctx) {
		return lock.Entry{}, lock.ErrNotApplied
	}
	return h.Network.ClaimSet(ctx, keys, claims)
}

const (
	campaignLasts = 40 * time.Second
	campaignJobs  = 120
	campaignKeys  = 14

	promiseOneHolder = "one-holder: two valid holders of a key"
	promiseAllOrNone = "all or none: a set is valid, and one of its keys is not held"
	promisePermits   = "permits: more holders than permits"
	promiseTicket    = "once a ticket: it was resumed twice"
	promiseNoOrphan  = "no-orphan: a key is taken at rest"
	promiseProgress  = "progress: a set of free keys is refused"
	promiseBounded   = "bounded: a caller that does not wait has waited for longer than its budgets"
)

// broke notes a broken promise.
func (x *setCampaign) broke(promise, format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.broken[promise] == "" {
		x.broken[promise] = fmt.Sprintf(format, args...)
	}
}

func (x *setCampaign) counted(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.count[what]++
}

func (x *setCampaign) between(low, high time.Duration) time.Duration {
	return low + time.Duration(x.plan.Int64N(int64(high-low)))
}

// play plays one round, and returns the number of faults.
func (x *setCampaign) play(t *testing.T, seed uint64) (faults int) {
	t.Helper()
	x.plan = rand.New(rand.NewPCG(seed, 3))
	x.holders = make(map[string]map[*setHold]bool)
	synctest.Test(t, func(t *testing.T) {
		network := fault.NewNetwork(x.server, seed)
		x.hosts = nil
		for range 3 {
			h := &setHost{Network: network, killed: make(chan struct{})}
			opts := []lock.Option{
				lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithMaxHold(20 * time.Second), lock.WithDetached(),
			}
			h.locker = lock.New(fault.Apart(h), opts...)
			x.hosts = append(x.hosts, h)
		}
		var jobs sync.WaitGroup
		for range campaignJobs {
			jobs.Go(x.job(t.Context()))
		}
		jobs.Go(x.disturb())
		jobs.Wait()
		faults = network.Faults()
		network.Improve(0)
		x.rest(t, network.Describe().MaxLag)
	})
	return faults
}

// disturb kills one process in the middle, and pauses another.
func (x *setCampaign) disturb() func() {
	killed, paused := x.hosts[0], x.hosts[1]
	dies, stops, pause := x.between(campaignLasts/4, campaignLasts), x.between(0, campaignLasts/2), x.between(budget, 3*lease)
	return func() {
		time.Sleep(stops)
		paused.mu.Lock()
		paused.paused = time.Now().Add(pause)
		paused.mu.Unlock()
		x.counted("pauses")
		time.Sleep(max(dies-stops, 0))
		close(killed.killed)
		x.counted("kills")
	}
}

// job draws the job of one caller.
func (x *setCampaign) job(ctx context.Context) func() {
	h, start, work := x.hosts[x.plan.IntN(len(x.hosts))], x.between(0, campaignLasts), x.between(0, 300*time.Millisecond)
	if x.plan.IntN(6) == 0 {
		work = x.between(0, 2*lease)
	}
	wait := time.Duration(0)
	if x.plan.IntN(3) == 0 {
		wait = x.between(time.Millisecond, 2*time.Second)
	}
	do := x.setJob(work, wait)
	switch x.plan.IntN(4) {
	case 0:
		do = x.permitJob(work)
	case 1:
		do = x.handOverJob(work)
	}
	return func() {
		time.Sleep(start)
		if !h.alive() {
			return
		}
		l := h.locker
		if wait > 0 {
			l = l.With(lock.WithWait(wait))
		}
		do(ctx, h, l)
	}
}

// setJob works under a set of one to eight keys.
func (x *setCampaign) setJob(work, wait time.Duration) func(context.Context, *setHost, *lock.Locker) {
	var keys []string
	for _, n := range x.plan.Perm(campaignKeys)[:1+x.plan.IntN(8)] {
		keys = append(keys, fmt.Sprint("item=", n))
	}
	return func(ctx context.Context, h *setHost, l *lock.Locker) {
		began := time.Now()
		answered := func() {
			// A claim of all keys, one of each, and the release of the granted keys.
			if most := time.Duration(len(keys)+2)*budget + wait; time.Since(began) > most+budget/4 && h.alive() {
				x.broke(promiseBounded, "%d keys: %v", len(keys), time.Since(began))
			}
		}
		granted := false
		err := x.all(ctx, l, keys, func(ctx context.Context) error {
			answered()
			granted = true
			x.counted(fmt.Sprintf("sets of %d", len(keys)))
			x.hold(ctx, h, work, 1, keys...)
			return nil
		})
		if !granted && err != nil {
			answered()
			x.counted("sets refused or unanswered")
		}
	}
}

// permitJob works under one of the permits of a resource with one to five.
func (x *setCampaign) permitJob(work time.Duration) func(context.Context, *setHost, *lock.Locker) {
	n := 1 + x.plan.IntN(5)
	slots, name := n, fmt.Sprint("export-", n)
	if x.slots > 0 && x.plan.IntN(2) == 0 {
		slots = n + x.slots
	}
	return func(ctx context.Context, h *setHost, l *lock.Locker) {
		_ = l.DoAny(ctx, lock.Slots(name, slots), func(ctx context.Context, _ string) error {
			x.counted(fmt.Sprintf("one of %d permits", n))
			x.hold(ctx, h, work, n, name)
			return nil
		})
	}
}

// handOverJob hands a key over to another process, to which the ticket is delivered twice.
func (x *setCampaign) handOverJob(work time.Duration) func(context.Context, *setHost, *lock.Locker) {
	key, patience := fmt.Sprint("item=", x.plan.IntN(campaignKeys)), x.between(time.Millisecond, 2*lease)
	type delivery struct {
		to          *setHost
		after, work time.Duration
	}
	twice := make([]delivery, 2)
	for i := range twice {
		twice[i] = delivery{x.hosts[x.plan.IntN(len(x.hosts))], x.between(0, lease), x.between(0, lease)}
	}
	return func(ctx context.Context, h *setHost, l *lock.Locker) {
		e, err := l.Acquire(ctx, key)
		if err != nil {
			return
		}
		x.hold(e.Context(), h, work, 1, key)
		ticket, err := e.HandOver(ctx, patience)
		_ = e.Release(ctx)
		if err != nil {
			return
		}
		x.counted("tickets")
		var resumed int
		var all sync.WaitGroup
		for _, d := range twice {
			all.Go(func() {
				time.Sleep(d.after)
				again, err := d.to.locker.Resume(ctx, ticket)
				if err != nil || !d.to.alive() {
					return
				}
				x.counted("tickets resumed")
				x.mu.Lock()
				resumed++
				times := resumed
				x.mu.Unlock()
				if times > 1 {
					x.broke(promiseTicket, "a ticket of %s", key)
				}
				x.hold(again.Context(), d.to, d.work, 1, key)
				_ = again.Release(ctx)
			})
		}
		all.Wait()
	}
}

// hold works, and compares with the other holders of names, of which each can have n.
func (x *setCampaign) hold(ctx context.Context, host *setHost, work time.Duration, n int, names ...string) {
	mine := &setHold{ctx, host}
	x.mu.Lock()
	var many []string
	for _, name := range names {
		if x.holders[name] == nil {
			x.holders[name] = make(map[*setHold]bool)
		}
		x.holders[name][mine] = true
		valid := 0
		for h := range x.holders[name] {
			if h.valid() {
				valid++
			}
		}
		if valid > n {
			many = append(many, fmt.Sprintf("%d of %s", valid, name))
		}
	}
	x.mu.Unlock()
	if len(many) > 0 {
		promise := promiseOneHolder
		if strings.Contains(many[0], "export") {
			promise = promisePermits
		}
		x.broke(promise, "%s", strings.Join(many, ", "))
	}
	x.allHeld(mine, names)
	over := time.NewTimer(work)
	defer over.Stop()
	select {
	case <-over.C:
	case <-host.killed:
	case <-ctx.Done():
	}
	x.allHeld(mine, names)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range names {
		delete(x.holders[name], mine)
	}
}

// allHeld looks on the server whether the keys of valid work are held.
func (x *setCampaign) allHeld(mine *setHold, names []string) {
	for _, name := range names {
		e, err := x.server.Get(context.Background(), name)
		if err == nil && e.State != lock.Held && !strings.HasPrefix(name, "export") && mine.valid() {
			x.broke(promiseAllOrNone, "%s of %v", name, names)
		}
	}
}

// rest checks the entries after all calls and clean-ups have ended.
func (x *setCampaign) rest(t *testing.T, lag time.Duration) {
	t.Helper()
	time.Sleep(30*time.Second + lag)
	var keys []string
	for n := range campaignKeys {
		keys = append(keys, fmt.Sprint("item=", n))
	}
	for n := 1; n <= 5; n++ {
		keys = append(keys, lock.Slots(fmt.Sprint("export-", n), n)...)
	}
	for _, key := range keys {
		if e, err := x.server.Get(t.Context(), key); err != nil || e.State != lock.Free {
			x.broke(promiseNoOrphan, "%s is %v, %v", key, e.State, err)
		}
	}
	for _, h := range x.hosts {
		if h.alive() {
			if err := h.locker.DoAll(t.Context(), keys, func(context.Context) error { return nil }); err != nil {
				x.broke(promiseProgress, "%v", err)
			}
		}
		ending, end := context.WithTimeout(t.Context(), time.Second)
		_ = h.locker.Close(ending)
		end()
	}
	time.Sleep(time.Minute) // the clean-up of a killed process has given up by then
}

// run plays rounds until there were as many faults as faults says, or until a promise is broken.
func (x *setCampaign) run(t *testing.T, faults int) (rounds, met int) {
	t.Helper()
	x.count, x.broken = make(map[string]int), make(map[string]string)
	for met < faults && len(x.broken) == 0 {
		met += x.play(t, *firstSeed+uint64(rounds))
		rounds++
	}
	return rounds, met
}

func TestCampaignOfSets(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "searches at random")
	t.Parallel()
	for name, server := range map[string]func() lock.Store{
		"at once":  func() lock.Store { return memstore.New() },
		"in order": func() lock.Store { return struct{ lock.Store }{memstore.New()} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := &setCampaign{server: server(), all: ordered}
			rounds, faults := x.run(t, *setFaults/2)
			require.Empty(t, x.broken, "seed %d", *firstSeed+uint64(rounds)-1)
			for _, what := range []string{"kills", "pauses", "tickets", "tickets resumed", "sets of 1", "sets of 8", "one of 1 permits", "one of 5 permits"} {
				require.Positive(t, x.count[what], what)
			}
			var seen []string
			for _, what := range slices.Sorted(maps.Keys(x.count)) {
				seen = append(seen, fmt.Sprintf("%s: %d", what, x.count[what]))
			}
			t.Logf("%d faults in %d rounds, 0 broken promises; %s", faults, rounds, strings.Join(seen, ", "))
		})
	}
}

// An intentional mistake breaks the promise that forbids it.
func TestCampaignOfSetsFindsWrongOnes(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "searches at random")
	t.Parallel()
	for name, tt := range map[string]struct {
		campaign *setCampaign
		want     string
	}{
		"a set released in part": {&setCampaign{server: memstore.New(), all: releasedInPart}, promiseAllOrNone},
		"two slots for one":      {&setCampaign{server: memstore.New(), all: ordered, slots: 1}, promisePermits},
		"a ticket resumed twice": {&setCampaign{server: giver{memstore.New()}, all: ordered}, promiseTicket},
		"a release by any token": {&setCampaign{server: ownerless{memstore.New()}, all: ordered}, promiseAllOrNone},
		"a set claimed in part":  {&setCampaign{server: partial{memstore.New()}, all: ordered}, promiseAllOrNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := tt.campaign
			for round := range 100 {
				x.count, x.broken = make(map[string]int), make(map[string]string)
				x.play(t, uint64(round))
				if x.broken[tt.want] != "" {
					t.Logf("round %d: %s: %s", round, tt.want, x.broken[tt.want])
					return
				}
			}
			t.Errorf("not found: %s", tt.want)
		})
	}
}

// partial claims all keys of a set but the last.
type partial struct{ *memstore.Store }

func (s partial) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
	last := max(len(keys)-1, 1)
	return s.Store.ClaimSet(ctx, keys[:last], claims[:last])
}
