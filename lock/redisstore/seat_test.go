package redisstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/carry"
	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/internal/respproxy"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// ledger is a counter that notes whether it is told of an arrival before the
// departure.
type ledger struct {
	departs, arrives atomic.Int32
	early            atomic.Bool
}

func (l *ledger) Depart() { l.departs.Add(1) }

func (l *ledger) Arrive(bool) {
	if l.arrives.Add(1) > l.departs.Load() {
		l.early.Store(true)
	}
}

func (l *ledger) balanced() bool {
	return l.departs.Load() == l.arrives.Load() && !l.early.Load()
}

// atOnce calls all at the same moment, and waits for them.
func atOnce(all ...func()) {
	begin := make(chan struct{})
	var calls sync.WaitGroup
	for _, call := range all {
		calls.Go(func() {
			<-begin
			call()
		})
	}
	close(begin)
	calls.Wait()
}

// A caller that leaves, a lane that gives a command up and a worker that settles
// it may come in any order: each departure has one arrival, after it, and the
// caller comes back.
func TestWhoPartsFirst(t *testing.T) {
	t.Parallel()
	const rounds = 5000
	for name, others := range map[string]func(*redisstore.Berth) []func(){
		"expires in the queue": func(b *redisstore.Berth) []func() { return []func(){b.Expire} },
		"settled":              func(b *redisstore.Berth) []func() { return []func(){b.Settle} },
		"written and settled":  func(b *redisstore.Berth) []func() { return []func(){func() { b.Write(); b.Settle() }} },
		"evicted, then settled": func(b *redisstore.Berth) []func() {
			return []func(){func() { b.Evict(); b.Settle() }}
		},
		"evicted twice, written and settled": func(b *redisstore.Berth) []func() {
			return []func(){func() { b.Evict(); b.Evict() }, func() { b.Write(); b.Settle() }}
		},
	} {
		for how, leaves := range map[string]bool{"leaves": true, "waits": false} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				for range rounds {
					var counts ledger
					try := &carry.Try{Parent: t.Context(), Until: time.Now().Add(time.Minute), Counter: &counts, Alarm: new(carry.Alarm)}
					berth := redisstore.NewBerth(try, name == "expires in the queue")
					var left, counted bool
					atOnce(append(others(berth), func() {
						left = berth.Caller(leaves)
						counted = counts.departs.Load() > 0
					})...)
					if !counts.balanced() || left && !counted {
						t.Fatalf("left %v, counted %v: %d departures, %d arrivals, early %v",
							left, counted, counts.departs.Load(), counts.arrives.Load(), counts.early.Load())
					}
				}
			})
		}
	}
}

// interrupted has something happen while a departure is being counted.
type interrupted struct {
	ledger

	during func()
}

func (c *interrupted) Depart() {
	c.during()
	c.ledger.Depart()
}

// What is settled while its caller leaves is not taken for something that was left
// behind before that is counted.
func TestSettledWhileItsCallerLeaves(t *testing.T) {
	t.Parallel()
	counts := new(interrupted)
	try := &carry.Try{Parent: t.Context(), Until: time.Now().Add(time.Minute), Counter: counts, Alarm: new(carry.Alarm)}
	berth := redisstore.NewBerth(try, false)
	berth.Write()
	counts.during = berth.Settle
	require.False(t, berth.Caller(true), "it has the answer")
	require.True(t, counts.balanced())
	require.EqualValues(t, 1, counts.departs.Load())
}

// Each departure has its arrival in a lane too, with callers that leave when their time is over.
func TestCallersLeaveAsTheirTimeIsOver(t *testing.T) {
	t.Parallel()
	const callers, rounds, longest = 64, 30, 8 * time.Millisecond
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	s := alwaysShared(open(t, p.URL()+"?read_timeout=20s"))
	p.On(respproxy.Match{Name: "set"}, respproxy.DelayReply(longest/8))
	var counts ledger
	var left atomic.Int32
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range rounds {
				parent, cancel := context.WithCancel(t.Context())
				wait := rand.N(longest)
				try := &carry.Try{
					Parent: parent, Until: time.Now().Add(wait), Keep: time.Now().Add(20 * time.Second),
					Counter: &counts, Alarm: new(carry.Alarm),
				}
				leaves := time.AfterFunc(wait, cancel)
				_, err := s.Claim(try, member(t, i), claim("tok"))
				if _, is := errors.AsType[*carry.LeftError](err); is {
					left.Add(1)
				}
				leaves.Stop()
				cancel()
				try.End()
			}
		})
	}
	all.Wait()
	require.GreaterOrEqual(t, counts.departs.Load(), left.Load())
	require.Eventually(t, counts.balanced, patience, time.Millisecond)
	require.Eventually(t, func() bool { return redisstore.Workers(s) == 0 }, patience, time.Millisecond)
	require.Zero(t, redisstore.Queued(s))
	require.True(t, counts.balanced(), "and none arrives twice")
}
