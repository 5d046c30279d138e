package wire_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
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
				t.Run(name+"/"+strconv.Itoa(callers)+" callers, "+strconv.Itoa(rate), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
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
										assert.NoError(t, call(t, s, sender, strconv.Itoa(i), yields))
									}
								}
							})
						}
						all.Wait()
						time.Sleep(time.Second)
						inFlight, _ := s.Pending()
						require.Zero(t, inFlight)
					})
				})
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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

// A server that becomes slower than its callers is not mistaken for a longer way, or not for long:
// a second after the next trial, there are no more commands in flight than the server executes in
// maxUsual.
func TestWindowFollowsASlowServer(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "simulates hundreds of callers")
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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

// A long way is tried with half a window, once: many commands are on it all the time.
func TestTrialIsOfHalfAWindow(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "simulates hundreds of callers")
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const short, trip, size = 200 * time.Millisecond, 50 * time.Millisecond, 64 // the way is short at first
		began := time.Now()
		s := over(t, &fake{way: func() time.Duration {
			if time.Since(began) < short {
				return 100 * time.Microsecond
			}
			return trip
		}})
		all := crowd(t, s, 2*size, began.Add(short+2*time.Second), true)
		time.Sleep(short + trip/2)
		var counts []int
		for range 20 {
			counts = append(counts, inFlight(s))
			time.Sleep(trip)
		}
		require.Less(t, slices.Min(counts), size, "the trial", counts)
		require.GreaterOrEqual(t, slices.Min(counts), size/4, counts)
		require.GreaterOrEqual(t, slices.Max(counts[len(counts)-5:]), size, counts)
		all.Wait()
	})
}

// If the server is the bottleneck, and fast enough, trials come every two seconds and not all
// the time.
func TestTrialsAreRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size, looks = 64, 400
		s := over(t, &fake{per: always(100 * time.Microsecond)})
		all := crowd(t, s, 2*size, time.Now().Add(6*time.Second), true)
		time.Sleep(time.Second)
		tried := 0
		for range looks {
			time.Sleep(10 * time.Millisecond)
			if inFlight(s) <= size/2 {
				tried++
			}
		}
		require.Less(t, tried, looks/20)
		all.Wait()
	})
}

// Long round trips with few commands in flight do not show whether the window is too large. So
// there is no trial, and all commands stay in flight.
func TestWindowThatIsNotFullIsNotTried(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "simulates hundreds of callers")
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const trip, callers = 50 * time.Millisecond, 12
		began := time.Now()
		s := over(t, &fake{way: func() time.Duration {
			if time.Since(began) < time.Second {
				return 100 * time.Microsecond
			}
			return trip
		}})
		all := crowd(t, s, callers, began.Add(6*time.Second), true)
		time.Sleep(time.Second + trip/2)
		for range 80 {
			require.GreaterOrEqual(t, inFlight(s), callers)
			time.Sleep(trip)
		}
		all.Wait()
	})
}

// A refusal is of the class silent once the server has answered nothing for a tenth of a second, and
// no longer once it answers.
func TestSilenceIsNoOverload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
