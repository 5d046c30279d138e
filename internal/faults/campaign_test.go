package faults_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

var (
	campaignSeed   = flag.Uint64("campaign.seed", 0, "seed of the fault campaign; 0 draws one")
	campaignFaults = flag.Int("campaign.faults", 1000, "how many faults the campaign injects")
)

// Six processes' worth of lockers work on the same keys of one Redis, each over
// its own network, while replies, requests, connections, scripts, the
// server and other processes are lost at random. The server keeps what it has
// acknowledged, so every invariant holds to the letter.
//
// The seed decides which faults come, of what length and in which order for
// each process. When they strike depends on the machine.
func TestCampaign(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "injects hundreds of faults in real time")
	seed := *campaignSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d: go test ./internal/faults -run 'TestCampaign$' -v -args -campaign.seed %d", seed, seed)
	c := newCampaign(t, seed, nil)
	c.run(*campaignFaults)
	c.rest()
	report := c.report()
	t.Log("\n" + report)
	if dir := os.Getenv("TEST_ARTIFACTS"); dir != "" {
		require.NoError(t, os.MkdirAll(dir, 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "campaign.txt"), []byte(report), 0o600))
	}
	require.Empty(t, c.book.violations())
	require.GreaterOrEqual(t, len(c.injected.names()), 12, "kinds of faults")
	require.Empty(t, c.seldomStruck(), "commands that hardly any fault struck")
	for _, path := range rarePaths {
		require.Positive(t, c.rare.get(path), "the campaign never went through %q", path)
	}
}

// The twins: what the campaign must catch, and under which name.
func TestCampaignCatches(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "runs a campaign for each planted fault")
	for _, twin := range []struct {
		name    string
		breaks  []string // one of these invariants must be found violated
		planted func(lock.Store) lock.Store
	}{
		{"release without owner", []string{oneHolder, ownRelease}, func(s lock.Store) lock.Store { return ownerless{s} }},
		{"claim takes what is held", []string{oneHolder, ownRelease}, func(s lock.Store) lock.Store { return robber{s} }},
		{"lost reply read as a refusal", []string{noSelfConflict, noOrphan}, func(s lock.Store) lock.Store { return naiveClaim{s} }},
		{"orphans are not removed", []string{noSelfConflict, noOrphan}, func(s lock.Store) lock.Store { return &forgetful{Store: s} }},
		{"renewal always says yes", []string{oneHolder, ownRelease}, func(s lock.Store) lock.Store { return yesman{s} }},
		{"not applied, though it had left the queue", []string{noSelfConflict, noOrphan}, func(s lock.Store) lock.Store { return hasty{s} }},
		{"clean-up frees a living lease", []string{oneHolder, ownRelease}, func(s lock.Store) lock.Store { return &sweeper{Store: s} }},
		{"renewal revives what another has taken", []string{oneHolder, ownRelease}, func(s lock.Store) lock.Store { return reviver{s} }},
		{"no record is kept", []string{once, sameAnswer}, func(s lock.Store) lock.Store { return recordless{s} }},
	} {
		t.Run(twin.name, func(t *testing.T) {
			c := newCampaign(t, max(*campaignSeed, 1), twin.planted)
			c.untilViolated = twin.breaks
			c.run(4 * *campaignFaults) // at most: most are found by a few hundred
			if c.caught() {
				c.close()
			} else {
				c.rest()
			}
			found := c.book.violations()
			i := slices.IndexFunc(found, func(v string) bool {
				return slices.ContainsFunc(twin.breaks, func(name string) bool { return strings.HasPrefix(v, name+":") })
			})
			require.GreaterOrEqual(t, i, 0, "%d faults, and of %q nothing was found; only %q", c.injected.total(), twin.breaks, found)
			t.Logf("after %d faults: %s", c.injected.total(), found[i])
		})
	}
}

// report says what was done and met.
func (c *campaign) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "fault campaign, seed %d: %d faults of %d kinds in %v\n", c.seed, c.injected.total(), len(c.injected.names()), c.took.Round(time.Second/10))
	for _, part := range []struct {
		title  string
		counts *counter
	}{{"injected", &c.injected}, {"rare paths", &c.rare}, {"outcomes", &c.outcomes}} {
		fmt.Fprintf(&b, "%s\n", part.title)
		for _, name := range part.counts.names() {
			fmt.Fprintf(&b, "  %6d  %s\n", part.counts.get(name), name)
		}
	}
	found := c.book.violations()
	fmt.Fprintf(&b, "violations of %s: %d\n", strings.Join(invariants, ", "), len(found))
	for _, v := range found[:min(len(found), 20)] {
		fmt.Fprintf(&b, "  %s\n", v)
	}
	return b.String()
}

// Stores with the bugs that the campaign is there to find.

// ownerless releases whatever is there, as a plain DEL does.
type ownerless struct{ lock.Store }

func (s ownerless) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	e, err := s.Get(ctx, key)
	if err != nil {
		return false, err
	}
	if e.State == lock.Held {
		c.Token = e.Token
	}
	return s.Store.Release(ctx, key, c)
}

// robber takes a key from its holder, now and then.
type robber struct{ lock.Store }

func (s robber) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	if err != nil || e.State != lock.Held || e.Token == c.Token || e.Left%7 != 0 {
		return e, err
	}
	if _, err := s.Release(ctx, key, lock.Claim{Token: e.Token}); err != nil {
		return e, err
	}
	return s.Store.Claim(ctx, key, c)
}

// naiveClaim gets the reply "taken" to the second send of a claim whose reply was
// lost, and does not ask by whom.
type naiveClaim struct{ lock.Store }

func (s naiveClaim) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	if err == nil || errors.Is(err, lock.ErrNotApplied) {
		return e, err
	}
	return lock.Entry{State: lock.Held, Token: "another"}, nil
}

// forgetful answers every release of a claim that had failed with "done".
type forgetful struct {
	lock.Store
	failed sync.Map // tokens
}

func (s *forgetful) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	if err != nil {
		s.failed.Store(c.Token, true)
	}
	return e, err
}

func (s *forgetful) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if _, failed := s.failed.Load(c.Token); failed {
		return true, nil
	}
	return s.Store.Release(ctx, key, c)
}

// yesman renews without looking.
type yesman struct{ lock.Store }

func (s yesman) Renew(context.Context, string, lock.Claim) (bool, error) { return true, nil }

// recordless frees a key instead of keeping its answer.
type recordless struct{ lock.Store }

func (s recordless) Settle(ctx context.Context, key string, c lock.Claim, _ []byte, _ time.Duration) (bool, error) {
	return s.Release(ctx, key, c)
}

// hasty says of claims that got no answer in time that they were not applied, as if they had still
// been in a queue. They had left it.
type hasty struct{ lock.Store }

func (s hasty) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	const soon = 20 * time.Millisecond // a connection that ends is noticed by then
	began := time.Now()
	e, err := s.Store.Claim(ctx, key, c)
	if err != nil && time.Since(began) > soon {
		return lock.Entry{}, fmt.Errorf("%w: it was given up in the queue", lock.ErrNotApplied)
	}
	return e, err
}

// sweeper cleans up after a claim that had failed by freeing its key, even if it has
// another holder by then.
type sweeper struct {
	lock.Store
	failed sync.Map // tokens
}

func (s *sweeper) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	if err != nil && !errors.Is(err, lock.ErrNotApplied) {
		s.failed.Store(c.Token, true)
	}
	return e, err
}

func (s *sweeper) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	ok, err := s.Store.Release(ctx, key, c)
	if _, failed := s.failed.Load(c.Token); !failed || ok || err != nil {
		return ok, err
	}
	return ownerless{s.Store}.Release(ctx, key, c)
}

// reviver renews a lease that has lapsed, or that a takeover was lost under, also
// where another process has taken the key since.
type reviver struct{ lock.Store }

func (s reviver) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	ok, err := s.Store.Renew(ctx, key, c)
	if ok {
		return true, nil
	}
	// As a script would: at once, or late.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), campaignLease/3)
	defer cancel()
	if freed, failed := ownerless(s).Release(ctx, key, c); !freed || failed != nil {
		return ok, err
	}
	e, err := s.Claim(ctx, key, c)
	return e.State == lock.Held && e.Token == c.Token, err
}
