package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

var errFailed = errors.New("the handler failed")

// fate is how an attempt to handle a message ends.
type fate int

const (
	succeeds     fate = iota
	failsBefore       // the effect
	panicsBefore      // the effect
	failsAfter        // the effect, of which it has taken note (lock.Commit)
)

// storm decides how the attempts to handle each message end, and counts the effects.
type storm struct {
	seed uint64

	mu        sync.Mutex
	attempts  map[string]int
	effects   map[string]int
	committed map[string]bool
}

func newStorm(t *testing.T) *storm {
	t.Helper()
	s := &storm{seed: rand.Uint64(), attempts: map[string]int{}, effects: map[string]int{}, committed: map[string]bool{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %#x", s.seed)
		}
	})
	return s
}

// dice returns a number below n that follows from the seed, what it is about, and the turn.
func (s *storm) dice(n int, about string, turn int) int {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, about)
	return rand.New(rand.NewPCG(s.seed+uint64(turn), h.Sum64())).IntN(n)
}

// fate decides about the next attempt. Every third fails, none after the fifth.
func (s *storm) fate(id string) fate {
	s.mu.Lock()
	s.attempts[id]++
	turn := s.attempts[id]
	s.mu.Unlock()
	if roll := s.dice(9, id, turn); turn <= 5 && roll < 3 {
		return failsBefore + fate(roll)
	}
	return succeeds
}

// work is a handler: it charges a card, say, which no transaction can take back.
func (s *storm) work(ctx context.Context, id string) error {
	fate := s.fate(id)
	time.Sleep(time.Duration(s.dice(2000, id, 0)) * time.Microsecond) // the work takes its time
	switch fate {
	case failsBefore:
		return errFailed
	case panicsBefore:
		panic("the handler panics")
	case succeeds, failsAfter:
	}
	s.happens(id)
	if fate == failsAfter {
		s.mu.Lock()
		s.committed[id] = true
		s.mu.Unlock()
		_ = lock.Commit(ctx) // an error without Once
		return errFailed
	}
	return nil
}

func (s *storm) happens(id string) {
	s.mu.Lock()
	s.effects[id]++
	s.mu.Unlock()
}

// loses reports whether the acknowledgement of this delivery is lost: one in four.
func (s *storm) loses(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts["ack "+id]++
	turn := s.attempts["ack "+id]
	return turn <= 5 && s.dice(4, "ack "+id, turn) == 0
}

type outcome struct{ lost, doubled []string }

func (s *storm) outcome(ids []string) outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	var o outcome
	for _, id := range ids {
		switch s.effects[id] {
		case 0:
			o.lost = append(o.lost, id)
		case 1:
		default:
			o.doubled = append(o.doubled, id)
		}
	}
	return o
}

func (s *storm) requireExact(t *testing.T, ids []string) {
	t.Helper()
	require.Equal(t, outcome{}, s.outcome(ids))
	require.Len(t, s.effects, len(ids), "effects of messages that were not sent")
}

// messages returns the IDs of n messages, which their producer has chosen.
func messages(n int) []string {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("order-%d", i))
	}
	return ids
}

func (s *storm) twice(ids []string) []string {
	all := append(slices.Clone(ids), ids...)
	rand.New(rand.NewPCG(s.seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func TestMain(m *testing.M) {
	if queue, url, ok := strings.Cut(os.Getenv(workerOver), " "); ok {
		fmt.Fprintln(os.Stderr, beWorker(queue, url))
		os.Exit(1)
	}
	goleak.VerifyTestMain(
		pgtest.Main(redistest.Main(m)),
		// The map of watermill's Deduplicator is cleaned up by a goroutine that never ends.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message/router/middleware.(*mapExpiringKeyRepository).cleanOutLoop"),
	)
}

// patient is for a machine on which other tests run too.
var patient = lock.WithBudget(5 * time.Second)

func newLocker(t *testing.T, store lock.Store, opts ...lock.Option) *lock.Locker {
	t.Helper()
	return guardtest.NewLocker(t, store, append([]lock.Option{patient}, opts...)...)
}

// overRedis returns a Locker over a server of this test's own, and that server.
func overRedis(t *testing.T, opts ...lock.Option) (*lock.Locker, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t)
	store, err := redisstore.Open(t.Context(), server.URL(), redisstore.WithPrefix("shop:"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return newLocker(t, store, opts...), server
}

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 5*time.Millisecond, what)
}
