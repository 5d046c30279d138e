package faults_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

var setFaults = flag.Int("sets.faults", 40, "how many faults the campaign of sets, permits and hand-overs injects")

const (
	setWorkers = 3
	setCalm    = 200 * time.Millisecond // in which sets of eight keys are granted, too
)

// setCampaign is the campaign of sets, permits and hand-overs: the hosts of a campaign, and processes that
// tickets are delivered to.
type setCampaign struct {
	*campaign

	book    *setBook
	buyers  []*buyer
	workers []*setWorker
	tickets atomic.Int64
}

// localLog is the setLog of a host in the process of the test.
type localLog struct{ *setCampaign }

func (l localLog) enter(ctx context.Context, n int, names []string) (leave func()) {
	var over atomic.Bool
	end := l.book.enter(n, names, func() bool { return !over.Load() && ctx.Err() == nil })
	return func() {
		over.Store(true)
		end()
	}
}

func (l localLog) resumed(ticket int) { l.book.wasResumed(ticket) }

func (l localLog) late() time.Duration { return l.campaign.book.timers.sum() }

func (l localLog) count(what string) { l.outcomes.add(what, 1) }

func (l localLog) violated(promise, format string, args ...any) {
	l.campaign.book.violated(promise, format, args...)
}

// newSetCampaign starts the server, the hosts and the workers. planted, if not nil, breaks the stores of
// the hosts; more is the number of permits by which the first host exceeds the limit.
func newSetCampaign(t *testing.T, seed uint64, planted func(lock.Store) lock.Store, more int) *setCampaign {
	t.Helper()
	s := &setCampaign{campaign: newCampaign(t, seed, planted)}
	s.book = &setBook{violated: s.campaign.book.violated, holders: make(map[string][]*setHolder), resumed: make(map[int]int)}
	for _, h := range s.hosts {
		h.calm = setCalm
		s.buyers = append(s.buyers, &buyer{setLog: localLog{s}, locker: h.locker, direct: s.direct})
	}
	s.buyers[0].more = more
	for n := range setWorkers {
		w := newSetWorker(s, 100+n)
		s.workers = append(s.workers, w)
		require.NoError(t, w.start())
		t.Cleanup(w.kill)
	}
	return s
}

// anyCommand is each command of a store, its handshakes apart.
var anyCommand = respproxy.Match{Name: "set|eval|evalsha"}

var setCommandFaults = []commandFault{
	{"reply lost, closed", anyCommand, always(respproxy.Swallow(respproxy.Close))},
	{"reply lost, reset", anyCommand, always(respproxy.Swallow(respproxy.Reset))},
	{"reply lost, hangs", anyCommand, always(respproxy.Swallow(respproxy.Hang))},
	{"reply cut", anyCommand, always(respproxy.CutReply(2))},
	{"reply late", anyCommand, delayed},
	{"applied, answered by an unknown error", anyCommand, always(afterApply)},
	{"refused", anyCommand, always(oom)},
	{"request lost, closed", anyCommand, always(respproxy.Drop(respproxy.Close))},
	{"request lost, hangs", anyCommand, always(respproxy.Drop(respproxy.Hang))},
	{"late at the server", anyCommand, held},
	{"handshake: reply lost", respproxy.Match{Name: "hello"}, always(respproxy.Swallow(respproxy.Close))},
}

// workerFaults strike one of the workers.
func (s *setCampaign) workerFaults(plan *rand.Rand) []serverFault {
	anyOne := func() *setWorker { return s.workers[plan.IntN(len(s.workers))] }
	return []serverFault{
		{"worker: killed (SIGKILL), started again", 10, func(c *campaign, d time.Duration) {
			w := anyOne()
			w.kill()
			c.pause(d)
			_ = w.start() // or later, if it cannot be started now
		}},
		{"worker: stopped (SIGSTOP), and goes on", 10, func(_ *campaign, d time.Duration) { anyOne().pauses(4 * d) }},
	}
}

// play works and injects until so many faults have struck, or enough says that there were enough.
func (s *setCampaign) play(faults int, enough func() bool) {
	began := time.Now()
	ctx := context.WithoutCancel(s.t.Context())
	for i, b := range s.buyers {
		hand := func(ctx context.Context, plan *rand.Rand) { s.handOver(ctx, plan, b) }
		for j, work := range []func(context.Context, *rand.Rand){b.set, b.permit, hand} {
			plan := rand.New(rand.NewPCG(s.seed, uint64(100*i+j)))
			s.working.Go(func() {
				for !s.stopped() {
					work(ctx, plan)
				}
			})
		}
		s.injecting.Go(func() { s.hosts[i].inject(setCommandFaults) })
	}
	for _, w := range s.workers {
		s.injecting.Go(func() { w.inject(setCommandFaults) })
	}
	plan := rand.New(rand.NewPCG(s.seed, 3000))
	s.injectUntil(began.Add(2*campaignTime*time.Duration(max(faults, 1000))/1000), slices.Concat(serverFaults, s.workerFaults(plan)),
		func() bool { return s.injected.total() >= faults || enough() })
	close(s.stop)
	s.injecting.Wait()
	for _, h := range s.hosts {
		h.proxy.Clear()
	}
	for _, w := range s.workers {
		w.proxy.Clear()
	}
	s.working.Wait()
	s.took = time.Since(began)
}

// handOver delivers a ticket to two processes, one after the other or both at once.
func (s *setCampaign) handOver(ctx context.Context, plan *rand.Rand, b *buyer) {
	ticket, key := b.handOver(ctx, plan)
	if ticket == "" {
		return
	}
	id := int(s.tickets.Add(1))
	for range 2 {
		pauseFor(ctx, between(plan, 0, 2*campaignBudget/5))
		work := b.work(plan)
		if s.untilViolated != nil || plan.IntN(4) == 0 { // a twin has only hosts whose stores are wrong
			to := s.buyers[plan.IntN(len(s.buyers))]
			s.working.Go(func() { to.resume(ctx, id, ticket, key, work) })
			continue
		}
		s.workers[plan.IntN(len(s.workers))].deliver(id, ticket, key, work)
	}
}

// rest checks what must be so when the faults are over.
func (s *setCampaign) rest() {
	calm, timers := time.Now(), s.campaign.book.timers
	late := timers.sum()
	for _, w := range s.workers {
		if err := w.leaves(); err != nil {
			s.campaign.book.violated(bounded, "a worker's end: %v", err)
		}
	}
	for _, b := range s.buyers {
		for began := time.Now(); ; {
			err := b.locker.DoAll(context.Background(), allItems(), func(context.Context) error { return nil })
			if err == nil {
				break
			}
			if took := since(calm, began, err); took > campaignLease+campaignSlack+timers.sum()-late {
				s.campaign.book.violated(progress, "all keys are not granted %v after the last fault: %v", took, err)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	s.close()
	s.book.asking.Wait()
	if err := left(s.t, s.server, campaignLease+campaignSlack); err != nil {
		s.campaign.book.violated(noOrphan, "%v", err)
	}
}

// Six hosts, each over its own network, and three real processes work on overlapping sets of one to eight
// keys, on one to five permits, and on keys that are handed over by tickets that are delivered twice.
// Replies, requests, connections and the server are lost at random, and processes are killed and stopped.
func TestCampaignOfSetsOverRedis(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "injects faults in real time")
	seed := *campaignSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	s := newSetCampaign(t, seed, nil, 0)
	s.play(*setFaults, func() bool { return false })
	s.rest()
	report := s.reportOf(setPromises)
	t.Log("\n" + report)
	if dir := os.Getenv("TEST_ARTIFACTS"); dir != "" {
		require.NoError(t, os.MkdirAll(dir, 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "campaign-of-sets.txt"), []byte(report), 0o600))
	}
	require.Empty(t, s.campaign.book.violations())
	if *setFaults < 1000 {
		return
	}
	for _, what := range []string{
		"set of 1", "set of 8", "one of 1 permits", "one of 5 permits", "ticket", "ticket resumed", "ticket refused or unanswered",
		"in a worker: set of 8", "in a worker: ticket resumed", "in a worker: ticket refused or unanswered",
	} {
		require.Positive(t, s.outcomes.get(what), what)
	}
	for _, path := range []string{recovered, reaped, lostLease} {
		require.Positive(t, s.rare.get(path), path)
	}
	require.GreaterOrEqual(t, len(s.injected.names()), 18, "kinds of faults")
}

// partial claims all keys of a set but the last.
type partial struct{ *redisstore.Store }

func (s partial) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
	last := max(len(keys)-1, 1)
	return s.Store.ClaimSet(ctx, keys[:last], claims[:last])
}

// giver gives a key to the bearer of each ticket of it, also of one that was used.
type giver struct{ lock.Store }

func (s giver) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if c.ReplacesHeld {
		e, err := s.Get(ctx, key)
		if err != nil {
			return lock.Entry{}, err
		}
		if e.State == lock.Held && e.Token != c.Token {
			c.Replaces = e.Token
		}
	}
	return s.Store.Claim(ctx, key, c)
}

// The twins: what the campaign must catch, and under which name.
func TestCampaignOfSetsOverRedisCatches(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "runs a campaign for each planted fault")
	for _, twin := range []struct {
		name    string
		breaks  []string
		planted func(lock.Store) lock.Store
		more    int
		always  bool // also in make test, which finds the others in one process
	}{
		{"a set claimed in part", []string{allOrNone, oneHolder}, func(s lock.Store) lock.Store { return partial{s.(*redisstore.Store)} }, 0, false},
		{"release without owner", []string{allOrNone, oneHolder}, func(s lock.Store) lock.Store { return ownerless{s} }, 0, false},
		{"one permit more", []string{permits}, nil, 1, false},
		{"a ticket resumed twice", []string{onceTicket}, func(s lock.Store) lock.Store { return giver{s} }, 0, true},
	} {
		if !twin.always && *setFaults < 1000 {
			continue
		}
		t.Run(twin.name, func(t *testing.T) {
			s := newSetCampaign(t, max(*campaignSeed, 1), twin.planted, twin.more)
			s.untilViolated = twin.breaks
			s.play(2000, s.caught)
			s.close()
			s.book.asking.Wait()
			found := slices.IndexFunc(s.campaign.book.violations(), func(v string) bool {
				return slices.ContainsFunc(twin.breaks, func(name string) bool { return strings.HasPrefix(v, name+":") })
			})
			require.GreaterOrEqual(t, found, 0, "%d faults, and only %q", s.injected.total(), s.campaign.book.violations())
			t.Logf("after %d faults: %s", s.injected.total(), fmt.Sprint(s.campaign.book.violations()[found]))
		})
	}
}
