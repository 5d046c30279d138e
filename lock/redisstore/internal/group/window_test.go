package group_test

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
	"github.com/httplatch/httplatch/lock/internal/send"
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
			for _, rate := range []int{120, 500} { // claims a second
				t.Run(name+"/"+strconv.Itoa(callers)+" callers, "+strconv.Itoa(rate), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						began := time.Now()
						g := newGroup(32, 32, true, func(ctx context.Context, names []string, reply func(string)) error {
							d := before
							if at := time.Since(began) - phase; at > 0 && at < phase {
								d = trip(at)
							}
							return answerAll(d)(ctx, names, reply)
						})
						s := newSender()
						var all sync.WaitGroup
						for i := range callers {
							all.Go(func() {
								every := time.Second * time.Duration(callers) / time.Duration(rate)
								next := began.Add(every * time.Duration(i) / time.Duration(callers))
								for time.Since(began) < 3*phase {
									time.Sleep(time.Until(next))
									next = next.Add(every)
									for _, yields := range []bool{true, false} { // a claim and its release
										err := send.Do(t.Context(), s, new(send.Call), send.Terms{Budget: 500 * time.Millisecond},
											request{g, strconv.Itoa(i), yields})
										assert.NoError(t, err)
									}
								}
							})
						}
						all.Wait()
						time.Sleep(time.Second)
						require.Zero(t, out(g))
					})
				})
			}
		}
	}
}

// A server that becomes slower than its callers is not mistaken for a longer way, or not for long:
// soon after the next trial, there are no more commands in flight than the server executes in
// maxUsual.
func TestWindowFollowsASlowServer(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "simulates hundreds of callers")
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			onset   = 2100 * time.Millisecond // the next trial for that reason alone is at 4 s
			soon    = 4600 * time.Millisecond
			end     = 7 * time.Second
			slowest = 2 * time.Millisecond
			most    = 32 // commands: ten take maxUsual, from where the window grows
		)
		began := time.Now()
		server := &slowServer{per: 20 * time.Microsecond}
		g := newGroup(32, 32, false, server.serve)
		var all sync.WaitGroup
		for i := range 256 {
			all.Go(func() {
				for time.Since(began) < end {
					_ = do(context.Background(), g, strconv.Itoa(i), true)
				}
			})
		}
		time.Sleep(onset)
		for per := slowest / 16; per <= slowest; per *= 2 {
			server.become(per)
			time.Sleep(100 * time.Millisecond)
		}
		for wait := time.Until(began.Add(soon)); time.Since(began) < end; wait = 7 * time.Millisecond {
			time.Sleep(wait)
			require.LessOrEqual(t, out(g), most, time.Since(began))
		}
		all.Wait()
	})
}

// A long way is tried with half a window, once: many commands are on it all the time.
func TestTrialIsOfHalfAWindow(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "simulates hundreds of callers")
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const short, trip, size = 200 * time.Millisecond, 50 * time.Millisecond, 4 * 32 // the way is short at first
		began := time.Now()
		// Replies that come at the same time would let all callers come back at the same time, and
		// send 32 commands on their own while the others wait.
		var batches atomic.Int64
		g := newGroup(32, 32, false, func(ctx context.Context, names []string, reply func(string)) error {
			if time.Since(began) < short {
				return answerAll(100*time.Microsecond)(ctx, names, reply)
			}
			return answerAll(trip+time.Duration(batches.Add(1)%20)*100*time.Microsecond)(ctx, names, reply)
		})
		var all sync.WaitGroup
		for i := range 2 * size {
			all.Go(func() {
				for time.Since(began) < short+2*time.Second {
					assert.NoError(t, do(context.Background(), g, strconv.Itoa(i), true))
				}
			})
		}
		time.Sleep(short + trip/2)
		var outs []int
		for range 20 {
			outs = append(outs, out(g))
			time.Sleep(trip)
		}
		require.Less(t, slices.Min(outs), size, "the trial", outs)
		require.GreaterOrEqual(t, slices.Min(outs), size/4, outs)
		require.GreaterOrEqual(t, slices.Max(outs[len(outs)-5:]), size, outs)
		all.Wait()
	})
}

// If the server is the bottleneck, and fast enough, trials come every two seconds and not all
// the time.
func TestTrialsAreRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size, looks = 4 * 32, 400
		began := time.Now()
		server := &slowServer{per: time.Microsecond}
		g := newGroup(32, 32, false, server.serve)
		require.NoError(t, do(context.Background(), g, "first", true)) // at once
		server.become(100 * time.Microsecond)
		var all sync.WaitGroup
		for i := range 2 * size {
			all.Go(func() {
				for time.Since(began) < 6*time.Second {
					assert.NoError(t, do(context.Background(), g, strconv.Itoa(i), true))
				}
			})
		}
		time.Sleep(time.Second)
		tried := 0
		for range looks {
			time.Sleep(10 * time.Millisecond)
			if out(g) <= size/2 {
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
		const trip, callers = 50 * time.Millisecond, 12 // each goes its own way
		began := time.Now()
		g := newGroup(32, 32, false, func(ctx context.Context, names []string, reply func(string)) error {
			if time.Since(began) < time.Second {
				return answerAll(100*time.Microsecond)(ctx, names, reply)
			}
			return answerAll(trip)(ctx, names, reply)
		})
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for time.Since(began) < 6*time.Second {
					assert.NoError(t, do(context.Background(), g, strconv.Itoa(i), true))
				}
			})
		}
		time.Sleep(time.Second + trip/2)
		for range 80 {
			require.Equal(t, callers, out(g))
			time.Sleep(trip)
		}
		all.Wait()
	})
}
