package wire_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// The way to a server may become a thousand times as long, at once or little by little,
// and short again: no call is refused because of it, and every call is answered.
func TestLongerWayRefusesNoCall(t *testing.T) {
	t.Parallel()
	const (
		before, after = 100 * time.Microsecond, 100 * time.Millisecond
		phase         = 6 * time.Second
	)
	for name, trip := range map[string]func(at time.Duration) time.Duration{
		"step": func(time.Duration) time.Duration { return after },
		"drift": func(at time.Duration) time.Duration {
			return before + time.Duration(float64(after-before)*float64(at)/float64(phase))
		},
	} {
		for _, callers := range []int{10, 30, 200} {
			for _, rate := range []int{120, 500, 650} { // claims a second
				t.Run(name+"/"+strconv.Itoa(callers)+" callers, "+strconv.Itoa(rate), virtual.Test(func(t *testing.T) {
					began := time.Now()
					s := over(t, &fake{way: func() time.Duration {
						if at := time.Since(began) - phase; at > 0 && at < phase {
							return trip(at)
						}
						return before
					}})
					sender := newSender()
					var all sync.WaitGroup
					for i := range callers {
						all.Go(func() {
							every := time.Second * time.Duration(callers) / time.Duration(rate)
							next := began.Add(every * time.Duration(i) / time.Duration(callers))
							for time.Since(began) < 3*phase {
								time.Sleep(time.Until(next))
								next = next.Add(every)
								for _, yields := range []bool{true, false} { // a claim and its release
									sent := time.Now()
									assert.NoError(t, call(t, s, sender, strconv.Itoa(i), yields))
									assert.True(t, callers > 10 || time.Since(sent) < 2*after, "so few do not wait for the window")
								}
							}
						})
					}
					all.Wait()
					time.Sleep(time.Second)
					require.Zero(t, inFlight(s))
				}))
			}
		}
	}
}

// crowd is callers that ask s until end.
func crowd(t *testing.T, s *wire.Server, callers int, end time.Time, check bool) *sync.WaitGroup {
	t.Helper()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				if err := ask(context.Background(), t, s, strconv.Itoa(i), true); check {
					assert.NoError(t, err)
				}
			}
		})
	}
	return &all
}

func inFlight(s *wire.Server) int {
	n, _ := s.Pending()
	return n
}

// A server that answers within a millisecond gets more commands at once than one connection has, and no
// longer when it takes two.
func TestFastServerGetsMoreCommands(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "simulates hundreds of callers")
	virtual.Run(t, func(t *testing.T) {
		const callers, usual, fast = 400, 64, 256
		began, per := time.Now(), time.Microsecond
		f := &fake{per: func() time.Duration { return per }} // under the lock of f
		s := over(t, f)
		all := crowd(t, s, callers, began.Add(time.Second), true)
		look := func(until time.Duration) (most int) {
			for time.Since(began) < until {
				time.Sleep(700 * time.Microsecond)
				most = max(most, inFlight(s))
			}
			return most
		}
		most := look(300 * time.Millisecond)
		require.Greater(t, most, usual)
		require.LessOrEqual(t, most, fast)
		f.mu.Lock()
		per = 20 * time.Microsecond // 64 commands take 1.3 ms, and 256 take 5
		f.mu.Unlock()
		look(500 * time.Millisecond)
		require.LessOrEqual(t, look(time.Second), usual)
		all.Wait()
	})
}

// A server that becomes slower than its callers is not mistaken for a longer way for long: a second after the next
// trial, there are no more commands in flight than it executes in maxUsual.
func TestWindowFollowsASlowServer(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "simulates hundreds of callers")
	virtual.Run(t, func(t *testing.T) {
		const (
			onset   = 2100 * time.Millisecond // the next trial for that reason alone is at 4 s
			soon    = 5200 * time.Millisecond
			end     = 7 * time.Second
			slowest = 2 * time.Millisecond
			most    = 32 // commands: ten take maxUsual, from where the window grows
		)
		began, per := time.Now(), 20*time.Microsecond
		f := &fake{per: func() time.Duration { return per }} // under the lock of f
		s := over(t, f)
		all := crowd(t, s, 256, began.Add(end), false)
		time.Sleep(onset)
		for d := slowest / 16; d <= slowest; d *= 2 {
			f.mu.Lock()
			per = d
			f.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
		}
		for wait := time.Until(began.Add(soon)); time.Since(began) < end; wait = 7 * time.Millisecond {
			time.Sleep(wait)
			require.LessOrEqual(t, inFlight(s), most, time.Since(began))
		}
		all.Wait()
	})
}

// A refusal is of the class silent from a tenth of a second without answers on, until the next answer.
func TestSilenceIsNoOverload(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		var silent atomic.Bool
		f := &fake{way: func() time.Duration {
			if silent.Load() {
				return time.Hour
			}
			return 100 * time.Microsecond
		}}
		s := over(t, f)
		require.NoError(t, ask(t.Context(), t, s, "first", true))
		silent.Store(true)
		var all sync.WaitGroup
		late := make([]error, 100)
		for i := range late {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				late[i] = ask(ctx, t, s, strconv.Itoa(i), true)
			})
		}
		all.Wait()
		for _, err := range late {
			require.Equal(t, "silent", failure.ClassOf(err))
		}
		silent.Store(false)
		require.NoError(t, ask(t.Context(), t, s, "again", true))
		time.Sleep(time.Hour)
	})
}

// One reply in a thousand is late, and holds up its connection. The callers behind it send again over
// another connection. There are enough: at 256 callers, a dozen are held up at a time.
func TestCallersBehindLateReplies(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "simulates hundreds of callers")
	t.Parallel()
	for _, callers := range []int{64, 256} {
		t.Run(strconv.Itoa(callers), virtual.Test(func(t *testing.T) {
			const usual, late, start, end = 100 * time.Microsecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second
			began := time.Now()
			f := &fake{per: always(4 * time.Microsecond), way: func() time.Duration {
				if time.Since(began) > start/2 && rand.IntN(1000) == 0 {
					return late
				}
				return usual
			}}
			s := over(t, f)
			sender := newSender()
			var mu sync.Mutex
			var took []time.Duration
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					for time.Since(began) < end {
						cycle := time.Now()
						for _, yields := range []bool{true, false} {
							assert.NoError(t, call(t, s, sender, strconv.Itoa(i), yields))
						}
						if time.Since(began) > start {
							mu.Lock()
							took = append(took, time.Since(cycle))
							mu.Unlock()
						}
					}
				})
			}
			all.Wait()
			require.Less(t, int(f.executed.Load())-len(f.arrived()), 3*32, "a PING for each connection, and a few more")
			slices.Sort(took)
			require.LessOrEqual(t, took[len(took)*99/100], 12*time.Millisecond)
		}))
	}
}

// A server with too much to do is asked for what it can do in time, and for nothing else: no outcome is unknown, and
// no PING is sent in vain. It takes a command of each connection in turns.
func TestOverloadedServerIsAskedNothingInVain(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		const per, callers, end, connect = 667 * time.Microsecond, 600, 12 * time.Second, 50
		f := &fake{per: always(per), turns: true, hello: 2, way: func() time.Duration { return rand.N(2 * time.Millisecond) }}
		s, sender, began := over(t, f), newSender(), time.Now()
		var cycles, unknown atomic.Int64
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for time.Since(began) < end {
					err := call(t, s, sender, strconv.Itoa(i), true)
					if err == nil {
						err = call(t, s, sender, strconv.Itoa(i), false)
						cycles.Add(1)
					}
					if err != nil && !errors.Is(err, lock.ErrNotApplied) {
						unknown.Add(1)
					}
					if err != nil {
						time.Sleep(20 * time.Millisecond)
					}
				}
			})
		}
		all.Wait()
		require.Zero(t, unknown.Load())
		require.Greater(t, int(cycles.Load()), int(end/per/2*9/10))
		require.Less(t, int(f.executed.Load()), int(2*cycles.Load())+connect)
		require.Less(t, len(f.connections()), 10)
	})
}
