package faults_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
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
	seed := *once.SeedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d: go test ./internal/faults -run 'TestCampaign$' -v -args -campaign.seed %d", seed, seed)
	c := newCampaign(t, seed, nil)
	c.run(*once.FaultsFlag)
	c.rest()
	once.Save(t, "redis", c.report())
	require.Empty(t, c.book.violations())
	require.GreaterOrEqual(t, c.injected.Kinds(), 12, "kinds of faults")
	require.Empty(t, c.seldomStruck(), "commands that hardly any fault struck")
	for _, path := range rarePaths {
		require.Positive(t, c.rare.Get(path), "the campaign never went through %q", path)
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
		{"lost reply read as a refusal", []string{noSelfConflict, noOrphan}, func(s lock.Store) lock.Store { return naiveClaim{s} }},
		{"orphans are not removed", []string{noSelfConflict, noOrphan}, func(s lock.Store) lock.Store { return &forgetful{Store: s} }},
		{"silence read as not applied", []string{noSelfConflict, noOrphan}, func(s lock.Store) lock.Store { return certain{s} }},
		{"renewal always says yes", []string{oneHolder, ownRelease}, func(s lock.Store) lock.Store { return yesman{s} }},
		{"no record is kept", []string{runsOnce, sameAnswer}, func(s lock.Store) lock.Store { return recordless{s} }},
	} {
		t.Run(twin.name, func(t *testing.T) {
			c := newCampaign(t, max(*once.SeedFlag, 1), twin.planted)
			c.untilViolated = twin.breaks
			c.run(4 * *once.FaultsFlag) // at most: most are found by a few hundred
			if c.caught() {
				c.close()
			} else {
				c.rest()
			}
			require.True(t, c.caught(), "%d faults, and of %q nothing was found; only %q", c.injected.Total(), twin.breaks, c.book.violations())
		})
	}
}

// report says what was done and met.
func (c *campaign) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "fault campaign, seed %d: %d faults of %d kinds in %v\n", c.seed, c.injected.Total(), c.injected.Kinds(), c.took.Round(time.Second/10))
	c.injected.Write(&b)
	b.WriteString("rare paths\n")
	c.rare.Write(&b)
	b.WriteString("outcomes\n")
	c.outcomes.Write(&b)
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

// certain knows of each claim without an answer that it was not applied.
type certain struct{ lock.Store }

func (s certain) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	if err != nil {
		err = errors.Join(err, lock.ErrNotApplied)
	}
	return e, err
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
