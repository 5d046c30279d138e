package group_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// counted is a server that counts the round trips and the commands of them.
func counted(to serve, trips, commands *atomic.Int64) serve {
	return func(ctx context.Context, names []string, reply func(string)) error {
		trips.Add(1)
		commands.Add(int64(len(names)))
		return to(ctx, names, reply)
	}
}

// oneAtATime is a server behind a single processor: it is busy for d with each round trip, for any
// number of commands.
func oneAtATime(d time.Duration) serve {
	processor := new(free)
	return func(ctx context.Context, names []string, reply func(string)) error {
		time.Sleep(time.Until(processor.next(d)))
		return answerAll(0)(ctx, names, reply)
	}
}

// free says when a processor is free.
type free struct {
	mu sync.Mutex
	at time.Time
}

// next returns the end of work that takes d.
func (f *free) next(d time.Duration) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.at.Before(now) {
		f.at = now
	}
	f.at = f.at.Add(d)
	return f.at
}

// A few callers share round trips where that serves more of them, and do not where it serves
// fewer, or as many. A change of the server is found out.
func TestSharingIsByTrial(t *testing.T) {
	t.Parallel()
	const trip, half, callers = 400 * time.Microsecond, 9 * time.Second, 4
	closedLoop := time.Duration(0)
	for name, tt := range map[string]struct {
		before, after serve
		pause         time.Duration // of a caller between two commands
		shares        bool
	}{
		"round trips are dear":              {oneAtATime(trip), oneAtATime(trip), closedLoop, true},
		"round trips are as quick together": {answerAll(trip), answerAll(trip), closedLoop, false},
		"callers come at their own rate":    {oneAtATime(trip), oneAtATime(trip), 10 * time.Millisecond, false},
		"round trips become dear":           {answerAll(trip), oneAtATime(trip), closedLoop, true},
		"round trips become cheap":          {oneAtATime(trip), answerAll(trip), closedLoop, false},
		"the way becomes long":              {oneAtATime(trip), answerAll(25 * trip), closedLoop, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var trips, commands atomic.Int64
				began := time.Now()
				g := newGroup(32, 32, true, counted(func(ctx context.Context, names []string, reply func(string)) error {
					if time.Since(began) < half {
						return tt.before(ctx, names, reply)
					}
					return tt.after(ctx, names, reply)
				}, &trips, &commands))
				s := newSender()
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						time.Sleep(time.Duration(i) * tt.pause / callers)
						for time.Since(began) < 2*half {
							_, err := call(t.Context(), s, g, strconv.Itoa(i), time.Second)
							assert.NoError(t, err)
							time.Sleep(tt.pause)
						}
					})
				}
				time.Sleep(2*half - time.Second)
				trips.Store(0)
				commands.Store(0)
				all.Wait()
				each := float64(commands.Load()) / float64(trips.Load())
				if tt.shares {
					require.Greater(t, each, 1.8)
				} else {
					require.Less(t, each, 1.2)
				}
			})
		})
	}
}

// Two callers that are left of a crowd, for which sharing was better, do not go on in turns: only
// one of them would be in flight, and the other one in the queue.
func TestTwoCallersAreLeft(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "simulates hundreds of callers")
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const trip, half = 400 * time.Microsecond, 9 * time.Second
		began := time.Now()
		crowded, alone := oneAtATime(trip), answerAll(trip)
		g := newGroup(32, 32, true, func(ctx context.Context, names []string, reply func(string)) error {
			if time.Since(began) < half {
				return crowded(ctx, names, reply)
			}
			return alone(ctx, names, reply)
		})
		s := newSender()
		var all sync.WaitGroup
		var last atomic.Int64 // commands in the last second
		for i := range 8 {
			until := half
			if i < 2 {
				until *= 2
			}
			all.Go(func() {
				for time.Since(began) < until {
					_, err := call(t.Context(), s, g, strconv.Itoa(i), time.Second)
					assert.NoError(t, err)
					if time.Since(began) > 2*half-time.Second {
						last.Add(1)
					}
				}
			})
		}
		all.Wait()
		require.Greater(t, last.Load(), int64(1.8*float64(time.Second/trip)))
	})
}
