package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// Processes that die in their work, or are paused in it, one after the other, over
// nodes that lose and delay at random: no two attempts are valid at once, each has
// a higher number than all before it, and the first receipt that anybody is told
// of, or that a settle has confirmed, is everybody's.
func TestQuorumAttemptsStress(t *testing.T) {
	t.Parallel()
	granted, receipts := 0, 0
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		w := attemptsStress(t, seed, lock.NewQuorum)
		require.Empty(t, w.found, "seed %d", seed)
		granted += w.granted
		receipts += w.replays
	}
	t.Logf("%d attempts granted, %d receipts found", granted, receipts)
	require.Greater(t, uint64(granted), *seeds, "nothing was ever taken over")
	require.Positive(t, receipts)
}

// The twin: a quorum for which a minority is enough.
func TestQuorumAttemptsStressCatchesMinority(t *testing.T) {
	for seed := range uint64(200) {
		if found := attemptsStress(t, seed, lock.WithoutMajority).found; len(found) > 0 {
			t.Logf("seed %d: %s", seed, found[0])
			return
		}
	}
	t.Error("nothing was found in 200 seeds")
}

// workers is one run of processes that do the same work.
type workers struct {
	mu         sync.Mutex
	validUntil time.Time // of the last attempt
	attempt    int
	granted    int
	settled    string
	replays    int
	found      []string
}

func (w *workers) bad(format string, args ...any) {
	w.found = append(w.found, fmt.Sprintf(format, args...))
}

func attemptsStress(t *testing.T, seed uint64, open func([]lock.Store, ...lock.QuorumOption) lock.Store) *workers {
	t.Helper()
	w := &workers{}
	synctest.Test(t, func(t *testing.T) {
		plan := rand.New(rand.NewPCG(seed, 3))
		var nodes []lock.Store
		for i := range uint64(3 + 2*plan.IntN(2)) {
			n := newNetwork(lock.NewMemory(), seed<<8+i)
			n.rate *= plan.Float64()
			nodes = append(nodes, n)
		}
		deaths := plan.IntN(12)
		var all sync.WaitGroup
		for i := range 2 + plan.IntN(3) {
			p := &process{
				workers: w,
				quorum:  open(nodes, lock.WithRetry(3, 60*time.Millisecond)),
				name:    fmt.Sprint("process ", i),
				random:  rand.New(rand.NewPCG(seed, uint64(10+i))),
				deaths:  deaths,
			}
			all.Go(func() { p.run(t.Context()) })
		}
		all.Wait()
		time.Sleep(time.Minute)
	})
	return w
}

// process does what a Locker does for Once, but dies when it likes.
type process struct {
	*workers
	quorum lock.Store
	name   string
	random *rand.Rand
	deaths int // attempts below it are not survived
	claims int
}

const attemptLease = time.Second

func (p *process) run(ctx context.Context) {
	replaces, attempt := "", 1
	for {
		time.Sleep(time.Duration(p.random.IntN(300)) * time.Millisecond)
		p.claims++
		token := fmt.Sprint(p.name, " claim ", p.claims)
		began := time.Now()
		e, err := p.quorum.Claim(ctx, key, lock.Claim{
			Token: token, Replaces: replaces, Attempt: attempt, Fingerprint: print1, Lease: attemptLease, Linger: keep,
		})
		was := attempt
		replaces, attempt = "", 1
		switch {
		case err != nil && was == 1:
			p.giveBack(ctx, token) // one that was to take over is left to lapse
		case err != nil:
		case e.State == lock.Settled:
			if p.replay(string(e.Receipt)) {
				return
			}
		case e.State == lock.Held && e.Token == token:
			if p.work(ctx, token, e.Attempt, began) {
				return
			}
		case e.State == lock.Abandoned:
			replaces, attempt = e.Token, e.Attempt+1
		}
	}
}

func (p *process) giveBack(ctx context.Context, token string) {
	for range 20 {
		if _, err := p.quorum.Release(ctx, key, token); err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// replay notes a receipt: the first one that anybody is told of is everybody's. It
// reports whether enough have been.
func (p *process) replay(receipt string) (through bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replays++
	if p.settled != "" && p.settled != receipt {
		p.bad("%s found the receipt %q after %q", p.name, receipt, p.settled)
	}
	p.settled = receipt
	return p.replays > 20
}

// work is one attempt, and reports whether the process is through.
func (p *process) work(ctx context.Context, token string, attempt int, began time.Time) (through bool) {
	valid := began.Add(attemptLease - attemptLease/100 - 2*time.Millisecond)
	if !time.Now().Before(valid) {
		return false
	}
	p.mu.Lock()
	p.granted++
	switch {
	case time.Now().Before(p.validUntil):
		p.bad("%s has attempt %d beside another", p.name, attempt)
	case attempt <= p.attempt:
		p.bad("%s has attempt %d after %d", p.name, attempt, p.attempt)
	case p.settled != "":
		p.bad("%s has attempt %d after the receipt", p.name, attempt)
	}
	p.validUntil, p.attempt = valid, attempt
	p.mu.Unlock()
	if attempt <= p.deaths {
		return false // as a process that has died, it says no more
	}
	busy := time.Duration(p.random.Int64N(int64(time.Until(valid))))
	if p.random.IntN(4) == 0 {
		busy += attemptLease // it was paused, and settles what somebody may have taken over
	}
	time.Sleep(busy)
	receipt := fmt.Sprint("answer of ", token)
	for range 50 {
		ok, err := p.quorum.Settle(ctx, key, token, []byte(receipt), keep)
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			switch {
			case ok && p.settled != "" && p.settled != receipt:
				p.bad("%s settled too", p.name)
			case ok:
				p.settled = receipt
			}
			return ok
		}
		time.Sleep(200 * time.Millisecond)
	}
	return false
}
