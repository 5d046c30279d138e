package group_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/group"
)

// errSilent is the error of a server that has not answered.
var errSilent = errors.New("no answer")

// verdicts returns the verdict that a Locker would return.
func verdicts(err error) send.Verdict {
	switch {
	case errors.Is(err, lock.ErrDenied):
		return send.Final
	case errors.Is(err, lock.ErrNotApplied):
		return send.NotApplied
	}
	return send.Unknown
}

func newSender() *send.Sender { return send.New(verdicts) }

// spend takes all tokens: there is no second send.
func spend(s *send.Sender) {
	for s.Retries.Tokens() > 0 {
		s.Retries.Take()
	}
}

// request is one command of a group.
type request struct {
	g      *group.Group
	name   string
	yields bool
}

func (r request) Send(ctx context.Context) error { return do(ctx, r.g, r.name, r.yields) }

// do makes a call. A claim yields.
func do(ctx context.Context, g *group.Group, name string, yields bool) error {
	c := group.NewCommand(name).With("command", name)
	c.Yields = yields
	_, err := g.Do(ctx, c)
	return err
}

// serve is a server: it calls reply for each name that it answers, and returns the error that ends
// its replies.
type serve func(ctx context.Context, names []string, reply func(name string)) error

func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))) // with a single processor a few commands share round trips
	os.Exit(m.Run())
}

// newGroup returns a group before a server that is serve. Its batches have at most
// share commands.
func newGroup(share, batches int, direct bool, to serve) *group.Group {
	return bounded(share, batches, 1<<16, direct, to)
}

func bounded(share, batches, queue int, direct bool, to serve) *group.Group {
	may := new(atomic.Bool)
	may.Store(direct)
	return group.New(group.Config{Share: share, Batches: batches, Queue: queue, Outer: true, Direct: may, Send: func(b *group.Batch) error {
		var names []string
		byName := make(map[string]*group.Command)
		for _, m := range b.Commands() {
			c := m.(*group.Command)
			names, byName[c.EntryName] = append(names, c.EntryName), c
		}
		return to(b, names, func(name string) { byName[name].SetErr(nil) })
	}})
}

func out(g *group.Group) int {
	n, _ := g.Pending()
	return n
}

func queued(g *group.Group) int {
	_, n := g.Pending()
	return n
}

func requireNotApplied(tb testing.TB, err error, class string) {
	tb.Helper()
	require.Error(tb, err)
	require.Equal(tb, class, failure.ClassOf(err), err)
	require.ErrorIs(tb, err, lock.ErrNotApplied)
}

func requireUnknown(tb testing.TB, err error, class string) {
	tb.Helper()
	require.Error(tb, err)
	require.Equal(tb, class, failure.ClassOf(err), err)
	require.NotErrorIs(tb, err, lock.ErrNotApplied)
}

// call sends a command as a Locker does.
func call(ctx context.Context, s *send.Sender, g *group.Group, name string, budget time.Duration) (*send.Call, error) {
	c := new(send.Call)
	return c, send.Do(ctx, s, c, send.Terms{Budget: budget}, request{g, name, true})
}

// answerAll is a server that answers each batch after d.
func answerAll(d time.Duration) serve {
	return func(_ context.Context, names []string, reply func(string)) error {
		time.Sleep(d)
		for _, n := range names {
			reply(n)
		}
		return nil
	}
}

// silentUntil is a server that answers nothing before it is released, and then all.
func silentUntil(release <-chan struct{}) serve {
	return func(_ context.Context, names []string, reply func(string)) error {
		<-release
		for _, n := range names {
			reply(n)
		}
		return nil
	}
}

// A command that is in the queue when its caller leaves was not applied, and is
// not sent. A command that has left the queue is unknown.
func TestTheQueueIsCertain(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"canceled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		},
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var sent []string
				release := make(chan struct{})
				g := newGroup(1, 1, false, func(ctx context.Context, names []string, reply func(string)) error {
					mu.Lock()
					sent = append(sent, names...)
					mu.Unlock()
					return silentUntil(release)(ctx, names, reply)
				})
				ctx, cancel := end(t.Context())
				defer cancel()
				class := map[string]string{"canceled": "cancelled", "deadline": "silent"}[name]
				var all sync.WaitGroup
				all.Go(func() { requireUnknown(t, do(ctx, g, "out", true), class) })
				synctest.Wait()
				for i, yields := range []bool{true, false} {
					all.Go(func() { requireNotApplied(t, do(ctx, g, "queued"+strconv.Itoa(i), yields), class) })
				}
				all.Wait()
				require.Zero(t, queued(g))
				close(release)
				synctest.Wait()
				require.Equal(t, []string{"out"}, sent)
				require.Zero(t, out(g))
			})
		})
	}
}

// When a call returns while its command is in flight, the command is counted
// until its end, and the outcome is reported.
func TestWhatIsLeftIsCounted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		serve serve
		want  send.Doubt
	}{
		"answered": {func(_ context.Context, names []string, reply func(string)) error {
			time.Sleep(time.Minute)
			reply(names[0])
			return nil
		}, send.Doubt{Answered: 1}},
		"lost": {func(context.Context, []string, func(string)) error {
			time.Sleep(time.Minute)
			return errSilent
		}, send.Doubt{Lost: 1}},
		"not written": {func(ctx context.Context, _ []string, _ func(string)) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return ctx.Err()
		}, send.Doubt{}},
		"panic": {func(context.Context, []string, func(string)) error {
			time.Sleep(time.Minute)
			panic("a hook's")
		}, send.Doubt{Lost: 1}},
		"exit": {func(context.Context, []string, func(string)) error {
			time.Sleep(time.Minute)
			runtime.Goexit()
			return nil
		}, send.Doubt{Lost: 1}},
	} {
		for how, leaves := range map[string]bool{"canceled": true, "in time": false} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s, g := newSender(), newGroup(32, 4, false, tt.serve)
					spend(s)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if leaves {
						time.AfterFunc(10*time.Millisecond, cancel)
					}
					began := time.Now()
					c, err := call(ctx, s, g, "k", 50*time.Millisecond)
					require.Error(t, err)
					require.True(t, c.Unanswered())
					require.LessOrEqual(t, time.Since(began), 60*time.Millisecond)
					require.Equal(t, 1, c.Flight().Doubt().InFlight)
					require.Equal(t, 1, s.Calls.Count())
					time.Sleep(2 * time.Minute)
					d := c.Flight().Doubt()
					d.Last = time.Time{}
					require.Equal(t, tt.want, d)
					require.Zero(t, s.Calls.Count())
				})
			})
		}
	}
}

// After a third of its budget, counted from when its command left the queue, a call
// is sent again over another connection, if there is a token.
func TestSecondSendIsPaidFor(t *testing.T) {
	t.Parallel()
	const budget = 90 * time.Millisecond // time alone gives a token in 100 ms
	for name, paid := range map[string]bool{"paid": true, "not paid": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var batches atomic.Int32
				release := make(chan struct{})
				g := newGroup(32, 4, false, func(ctx context.Context, names []string, reply func(string)) error {
					if batches.Add(1) == 1 {
						<-release
					}
					return answerAll(time.Millisecond)(ctx, names, reply)
				})
				s := newSender()
				if !paid {
					spend(s)
				}
				before, began := s.Retries.Tokens(), time.Now()
				c, err := call(t.Context(), s, g, "k", budget)
				took := time.Since(began)
				require.True(t, c.Unanswered())
				require.Equal(t, 1, c.Flight().Doubt().InFlight)
				if paid {
					require.NoError(t, err)
					require.InDelta(t, budget/3, took, float64(10*time.Millisecond))
					require.Equal(t, before-1, s.Retries.Tokens())
				} else {
					require.Error(t, err)
					require.InDelta(t, budget, took, float64(10*time.Millisecond))
				}
				close(release)
				time.Sleep(time.Second)
				require.Zero(t, c.Flight().Doubt().InFlight)
			})
		})
	}
}

// Commands that end a lease leave the queue before commands that claim one.
func TestEndsGoBeforeClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order []string
		release := make(chan struct{})
		g := newGroup(1, 1, false, func(ctx context.Context, names []string, reply func(string)) error {
			order = append(order, names...)
			return silentUntil(release)(ctx, names, reply)
		})
		var all sync.WaitGroup
		for _, name := range []string{"first", "claim1", "claim2", "end1", "end2"} {
			all.Go(func() { assert.NoError(t, do(t.Context(), g, name, strings.HasPrefix(name, "claim"))) })
			synctest.Wait()
		}
		close(release)
		all.Wait()
		require.Equal(t, []string{"first", "end1", "end2", "claim1", "claim2"}, order)
	})
}

// slowServer executes one command after the other, from all connections.
type slowServer struct {
	mu   sync.Mutex
	next time.Time
	per  time.Duration
	n    atomic.Int64
}

// become changes how long it takes for a command.
func (s *slowServer) become(per time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.per = per
}

func (s *slowServer) serve(_ context.Context, names []string, reply func(string)) error {
	for _, name := range names {
		s.mu.Lock()
		if now := time.Now(); s.next.Before(now) {
			s.next = now
		}
		s.next = s.next.Add(s.per)
		at := s.next
		s.mu.Unlock()
		time.Sleep(time.Until(at))
		s.n.Add(1)
		reply(name)
	}
	return nil
}

// patientContext hides the deadline of a call from the group.
type patientContext struct{ context.Context } //nolint:containedctx // it is one

func (patientContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// A server that is slower than its callers serves as many as it can, all of them
// in time, and the others are refused at once. Without refusals it works for
// callers that have gone.
func TestOverload(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "simulates hundreds of callers")
	t.Parallel()
	const (
		budget  = 500 * time.Millisecond
		per     = time.Millisecond
		seconds = 5
	)
	for name, hide := range map[string]bool{"admission": false, "no admission": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := &slowServer{per: per}
				g := newGroup(32, 32, false, server.serve)
				var served, refused, unknown atomic.Int64
				var mu sync.Mutex
				var took []time.Duration
				var all sync.WaitGroup
				arrive := func() {
					ctx, cancel := context.WithTimeout(t.Context(), budget)
					defer cancel()
					if hide {
						ctx = patientContext{ctx}
					}
					began := time.Now()
					switch err := do(ctx, g, fmt.Sprint(rand.Int64()), true); {
					case err == nil:
						served.Add(1)
					case errors.Is(err, lock.ErrNotApplied):
						refused.Add(1)
						mu.Lock()
						took = append(took, time.Since(began))
						mu.Unlock()
					default:
						unknown.Add(1)
					}
				}
				const load = 2
				for range seconds * int(time.Second/per) * load {
					all.Go(arrive)
					time.Sleep(per / load)
				}
				all.Wait()
				time.Sleep(time.Second) // the commands left behind are answered
				capacity := float64(seconds) * float64(time.Second/per)
				goodput, lost := float64(served.Load())/capacity, float64(unknown.Load())/capacity
				if hide {
					require.Less(t, goodput, 0.9, "the twin")
					return
				}
				require.Greater(t, goodput, 0.9)
				require.Less(t, lost, 0.01)
				slices.Sort(took)
				require.Less(t, took[len(took)/2], 5*time.Millisecond)
			})
		})
	}
}

// A server that keeps up refuses no call: idle, under a steady load of 0.8 of its capacity, and in
// bursts.
func TestHealthyServerRefusesNoCall(t *testing.T) {
	t.Parallel()
	const per = 20 * time.Microsecond
	for name, load := range map[string]func(call func()){
		"idle": func(call func()) {
			for range 100 {
				go call()
				time.Sleep(3 * time.Second)
			}
		},
		"steady": func(call func()) {
			for range 50_000 {
				go call()
				time.Sleep(per * 10 / 8)
			}
		},
		"bursts": func(call func()) {
			for range 20 {
				for range 1000 {
					go call()
				}
				time.Sleep(300 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := &slowServer{per: per}
				g := newGroup(32, 32, false, server.serve)
				load(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
					defer cancel()
					assert.NoError(t, do(ctx, g, fmt.Sprint(rand.Int64()), true))
				})
				time.Sleep(time.Second)
			})
		})
	}
}

// Measurements from the time when a server was slow do not make the store refuse
// calls later: every caller is served within a second.
func TestServedAgainAfterOverload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		server := &slowServer{per: 20 * time.Microsecond}
		stuck := &slowServer{per: 30 * time.Millisecond}
		g := newGroup(32, 32, false, func(ctx context.Context, names []string, reply func(string)) error {
			if slow.Load() {
				return stuck.serve(ctx, names, reply)
			}
			return server.serve(ctx, names, reply)
		})
		var refused atomic.Int64
		arrive := func() {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			if do(ctx, g, fmt.Sprint(rand.Int64()), true) != nil {
				refused.Add(1)
			}
		}
		slow.Store(true)
		for range 3000 {
			go arrive()
			time.Sleep(2 * time.Millisecond)
		}
		require.NotZero(t, refused.Load())
		slow.Store(false)
		for range 1000 {
			go arrive()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		refused.Store(0)
		for range 20 {
			for range 50 {
				go arrive()
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		require.Zero(t, refused.Load())
		require.Zero(t, out(g))
	})
}

// A batch that waits for a connection that stalls does not keep the others.
func TestStallsAreOfOneBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		g := newGroup(32, 32, false, func(ctx context.Context, names []string, reply func(string)) error {
			d := 200 * time.Microsecond
			if n.Add(1)%30 == 0 {
				d = 100 * time.Millisecond
			}
			return answerAll(d)(ctx, names, reply)
		})
		var all sync.WaitGroup
		var late, calls atomic.Int64
		for i := range 256 {
			all.Go(func() {
				for range 200 {
					began := time.Now()
					assert.NoError(t, do(t.Context(), g, strconv.Itoa(i), true))
					calls.Add(1)
					if took := time.Since(began); took > 20*time.Millisecond {
						late.Add(1)
						assert.Less(t, took, 130*time.Millisecond)
					}
				}
			})
		}
		all.Wait()
		require.Less(t, float64(late.Load())/float64(calls.Load()), 0.06, "the members of one batch in thirty, and some")
	})
}

// A caller that sends its own command comes back when it is to.
func TestDirectCallsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(32, 4, true, func(ctx context.Context, _ []string, _ func(string)) error {
			<-ctx.Done() // as a pool does
			return ctx.Err()
		})
		began := time.Now()
		c, err := call(t.Context(), newSender(), g, "k", 300*time.Millisecond)
		require.Error(t, err)
		require.False(t, c.Unanswered(), "it was never written")
		require.InDelta(t, 300, time.Since(began).Milliseconds(), 20)
		began = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.Error(t, do(ctx, g, "k", true), "of another than a Locker")
		require.InDelta(t, 50, time.Since(began).Milliseconds(), 10)
		synctest.Wait()
	})
}

// A caller that sends its own command gives it up after a third of its budget only if
// a token pays for another send. The others wait for as long as they may, and say so.
func TestDirectCallsArePaidFor(t *testing.T) {
	t.Parallel()
	const callers, tokens, budget = 12, 5, 90 * time.Millisecond // time alone gives a token in 100 ms
	synctest.Test(t, func(t *testing.T) {
		var silent sync.Map // by name: the commands that met the silence
		g := newGroup(32, 32, true, func(ctx context.Context, names []string, reply func(string)) error {
			if _, met := silent.LoadOrStore(names[0], true); !met {
				end, _ := ctx.Deadline()
				time.Sleep(time.Until(end)) // as a connection does
				return errSilent
			}
			reply(names[0])
			return nil
		})
		s := newSender()
		for s.Retries.Tokens() > tokens {
			s.Retries.Take()
		}
		var served, failed atomic.Int64
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				began := time.Now()
				if _, err := call(t.Context(), s, g, strconv.Itoa(i), budget); err == nil {
					served.Add(1)
					assert.Equal(t, budget/3, time.Since(began))
				} else {
					failed.Add(1)
					assert.ErrorContains(t, err, "no answer within 90ms")
					assert.Equal(t, budget, time.Since(began))
				}
			})
		}
		all.Wait()
		require.EqualValues(t, tokens, served.Load())
		require.EqualValues(t, callers-tokens, failed.Load())
	})
}

// Callers that leave, the group that gives commands up and batches that end may
// come in any order: each departure has one arrival, after it.
func TestEachDepartureArrivesOnce(t *testing.T) {
	t.Parallel()
	const callers, rounds, longest = 64, 50, 8 * time.Millisecond
	g := newGroup(8, 4, false, func(_ context.Context, names []string, reply func(string)) error {
		time.Sleep(rand.N(longest / 2))
		if rand.IntN(4) == 0 {
			return errSilent
		}
		for _, n := range names {
			reply(n)
		}
		return nil
	})
	s := newSender()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				leaves := time.AfterFunc(rand.N(longest), cancel)
				_, _ = call(ctx, s, g, strconv.Itoa(i), rand.N(longest)+time.Millisecond)
				leaves.Stop()
				cancel()
			}
		})
	}
	all.Wait()
	require.Eventually(t, func() bool { return out(g) == 0 && s.Calls.Count() == 0 }, 30*time.Second, time.Millisecond)
	time.Sleep(longest)
	require.Zero(t, s.Calls.Count(), "and none arrives twice")
	require.Zero(t, queued(g))
}

// A hook that ends its goroutine takes no batch with it that was to be sent next.
func TestExitOfAHookLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		batches := 0
		g := newGroup(1, 1, false, func(ctx context.Context, names []string, reply func(string)) error {
			time.Sleep(10 * time.Millisecond)
			if batches++; batches == 1 {
				runtime.Goexit()
			}
			return answerAll(0)(ctx, names, reply)
		})
		var all sync.WaitGroup
		all.Go(func() { requireUnknown(t, do(t.Context(), g, "first", true), "answer") })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all.Go(func() { assert.NoError(t, do(ctx, g, "second", true)) })
		all.Wait()
		synctest.Wait()
		require.Zero(t, out(g))
	})
}

// A hook that ends the goroutine of its caller leaves no value that another call could read as its
// answer: it would be read as a grant.
func TestExitOfAHookIsNoAnswerToAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var exits atomic.Bool
		exits.Store(true)
		release := make(chan struct{})
		g := newGroup(1, 32, true, func(context.Context, []string, func(string)) error {
			if exits.Load() {
				runtime.Goexit()
			}
			<-release
			return errSilent
		})
		for range 100 {
			exited := make(chan struct{})
			go func() {
				defer close(exited)
				_, _ = call(t.Context(), newSender(), g, "exits", time.Second)
			}()
			<-exited
		}
		exits.Store(false)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				_, err := call(t.Context(), newSender(), g, "silent", 100*time.Millisecond)
				assert.Error(t, err)
			})
		}
		all.Go(func() {
			time.Sleep(time.Second)
			close(release)
		})
		all.Wait()
		synctest.Wait()
	})
}

// Close waits for queued commands too: otherwise they would be sent after its return.
func TestCloseWaitsForTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(1, 1, false, answerAll(10*time.Millisecond))
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() { assert.NoError(t, do(t.Context(), g, strconv.Itoa(i), true)) })
		}
		synctest.Wait()
		require.Equal(t, 2, queued(g))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		group.Drain(ctx, func() []*group.Group { return []*group.Group{g} })
		require.Zero(t, queued(g))
		require.Zero(t, out(g))
		all.Wait()
	})
}

// The way to a server can become five hundred times as long, although the server is not slower:
// many commands are in flight again within seconds. If the way becomes longer, but not so long that
// the server appears slow, many are in flight again within a minute.
func TestLongerWayIsNoSlowerServer(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		share, callers int
		trip, after    time.Duration
		out            int // least number of commands in flight at the end
	}{
		"shared":     {32, 256, 50 * time.Millisecond, 5 * time.Second, 100},
		"one by one": {1, 256, 50 * time.Millisecond, 5 * time.Second, 32},
		"a little":   {4, 128, 10 * time.Millisecond, time.Minute, 64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var trip, served atomic.Int64
				trip.Store(int64(100 * time.Microsecond))
				g := newGroup(row.share, 32, false, func(ctx context.Context, names []string, reply func(string)) error {
					return answerAll(time.Duration(trip.Load()))(ctx, names, reply)
				})
				var stop atomic.Bool
				var all sync.WaitGroup
				for i := range row.callers {
					all.Go(func() {
						for !stop.Load() {
							if do(context.Background(), g, strconv.Itoa(i), true) == nil {
								served.Add(1)
							}
						}
					})
				}
				time.Sleep(50 * time.Millisecond)
				trip.Store(int64(row.trip))
				time.Sleep(row.after)
				before := served.Load()
				time.Sleep(time.Second)
				n := served.Load() - before
				stop.Store(true)
				all.Wait()
				require.Greater(t, n, int64(row.out)*int64(time.Second/row.trip)*9/10)
			})
		})
	}
}

// One reply in a thousand is late, by 100 ms, and holds up the other replies of its batch. With
// 256 callers, all can wait for a while. No caller is refused for it, since the server is not
// slow.
func TestLateRepliesAreNoSlowServer(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "simulates hundreds of callers")
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(32, 32, false, func(ctx context.Context, names []string, reply func(string)) error {
			trip := 300 * time.Microsecond
			if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "late") }) {
				trip = 100 * time.Millisecond
			}
			return answerAll(trip)(ctx, names, reply)
		})
		var served, refused atomic.Int64
		var all sync.WaitGroup
		end := time.Now().Add(5 * time.Second)
		for caller := range 256 {
			all.Go(func() {
				for n := 0; time.Now().Before(end); n++ {
					name := strconv.Itoa(caller)
					if (n+37*caller)%1000 == 999 {
						name = "late" + name
					}
					for _, yields := range []bool{true, false} { // a claim and its release
						ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
						if do(ctx, g, name, yields) == nil {
							served.Add(1)
						} else {
							refused.Add(1)
						}
						cancel()
					}
				}
			})
		}
		all.Wait()
		require.Zero(t, refused.Load())
		require.Greater(t, served.Load(), int64(100_000))
	})
}

// A dead connection delays its own batch, and no others, also where the window has become a single
// command, for a slow server that is quick again.
func TestDeadConnectionInASmallWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var trip atomic.Int64
		g := newGroup(32, 32, true, func(ctx context.Context, names []string, reply func(string)) error {
			if slices.Contains(names, "dead") {
				<-ctx.Done()
				return ctx.Err()
			}
			return answerAll(time.Duration(trip.Load()))(ctx, names, reply)
		})
		for _, phase := range []struct {
			trip  time.Duration
			calls int
		}{{time.Millisecond, 1}, {100 * time.Millisecond, 30}, {time.Millisecond, 50}} {
			trip.Store(int64(phase.trip))
			for range phase.calls {
				require.NoError(t, do(t.Context(), g, "one", true))
			}
		}
		var all sync.WaitGroup
		arrive := func(name string, budget time.Duration) {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), budget)
				defer cancel()
				assert.Equal(t, name == "dead", do(ctx, g, name, true) != nil, name)
			})
		}
		arrive("dead", time.Minute)
		synctest.Wait()
		for i := range 100 {
			arrive(strconv.Itoa(i), time.Second)
		}
		all.Wait()
		time.Sleep(time.Second) // for the batch of the dead one, which ends with its call
	})
}

// Each call ends at its own deadline, for any earlier caller and any number of
// waiters.
func TestDeadlinesInAnyOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, g := newSender(), newGroup(32, 1, false, silentUntil(release))
		spend(s)
		var all sync.WaitGroup
		for i := range 5000 {
			all.Go(func() {
				d := time.Duration(1+rand.IntN(1000)) * time.Millisecond
				began := time.Now()
				_, err := call(context.Background(), s, g, strconv.Itoa(i), d)
				assert.Error(t, err)
				assert.InDelta(t, d.Milliseconds(), time.Since(began).Milliseconds(), 20)
			})
		}
		all.Wait()
		require.Zero(t, queued(g))
		close(release)
		synctest.Wait()
		require.Zero(t, out(g))
	})
}

// The callers that wait are bounded. One more is refused, and a repeat would only make the queue
// longer. Claims take no room from commands that end a lease.
func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const room = 3
		release := make(chan struct{})
		g := bounded(1, 1, room, false, silentUntil(release))
		var all sync.WaitGroup
		arrive := func(yields bool) {
			all.Go(func() { assert.NoError(t, do(t.Context(), g, "waits", yields)) })
			synctest.Wait()
		}
		refused := func(yields bool) {
			err := do(t.Context(), g, "more", yields)
			requireNotApplied(t, err, "queue")
			require.ErrorIs(t, err, lock.ErrDenied)
		}
		arrive(true) // it is out
		for range room {
			arrive(true)
		}
		refused(true)
		for range room {
			arrive(false)
		}
		refused(false)
		refused(true)
		require.Equal(t, 2*room, queued(g))
		close(release)
		all.Wait()
		require.NoError(t, do(t.Context(), g, "more", true))
	})
}

// Clean-up waits with the claims, also if its context comes from a store in between.
func TestCleanUpComesAfterCallers(t *testing.T) {
	t.Parallel()
	type traced struct{}
	for name, derive := range map[string]func(context.Context) context.Context{
		"of the call": func(ctx context.Context) context.Context { return ctx },
		"derived":     func(ctx context.Context) context.Context { return context.WithValue(ctx, traced{}, true) },
		"detached":    context.WithoutCancel,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var order []string
				release := make(chan struct{})
				g := newGroup(1, 1, false, func(ctx context.Context, names []string, reply func(string)) error {
					order = append(order, names...)
					return silentUntil(release)(ctx, names, reply)
				})
				var all sync.WaitGroup
				arrive := func(name string, cleaning bool) {
					all.Go(func() {
						terms := send.Terms{Budget: time.Minute, Cleaning: cleaning}
						assert.NoError(t, send.Do(t.Context(), newSender(), new(send.Call), terms, through{derive, request{g, name, false}}))
					})
					synctest.Wait()
				}
				arrive("out", false)
				arrive("clean-up", true)
				arrive("release", false)
				close(release)
				all.Wait()
				require.Equal(t, []string{"out", "release", "clean-up"}, order)
			})
		})
	}
}

// through is a store that sends to another store, with its own context.
type through struct {
	derive func(context.Context) context.Context
	to     request
}

func (s through) Send(ctx context.Context) error { return s.to.Send(s.derive(ctx)) }

// A command with a large load or argument is sent alone: other commands would wait for it.
func TestLargeCommandsGoAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var batches [][]string
		release := make(chan struct{})
		g := newGroup(32, 1, false, func(ctx context.Context, names []string, reply func(string)) error {
			batches = append(batches, names)
			return silentUntil(release)(ctx, names, reply)
		})
		var all sync.WaitGroup
		for _, tt := range []struct {
			name           string
			load, argument int
		}{{"first", 0, 0}, {"8 KiB", 8 << 10, 0}, {"1 KiB", 0, 1 << 10}, {"load", 16<<10 + 1, 0}, {"argument", 0, 32 << 10}, {"last", 0, 0}} {
			c := group.NewCommand(tt.name)
			c.Load = make(group.Load, tt.load)
			c.With("command", tt.name, &c.Load, make([]byte, tt.argument))
			all.Go(func() {
				_, err := g.Do(t.Context(), c)
				assert.NoError(t, err)
			})
			synctest.Wait()
		}
		close(release)
		all.Wait()
		require.Equal(t, [][]string{{"first"}, {"8 KiB", "1 KiB"}, {"load"}, {"argument"}, {"last"}}, batches)
	})
}

// The number of batches in flight reaches its bound, and does not exceed it, even over such a long
// way that more commands wait.
func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	for _, batches := range []int{1, 4, 32} {
		t.Run(strconv.Itoa(batches), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var now, most atomic.Int64
				g := newGroup(32, batches, false, func(ctx context.Context, names []string, reply func(string)) error {
					most.Store(max(most.Load(), now.Add(1)))
					defer now.Add(-1)
					require.LessOrEqual(t, len(names), 32)
					return answerAll(50*time.Millisecond)(ctx, names, reply)
				})
				var all sync.WaitGroup
				for i := range 2 * 32 * batches {
					all.Go(func() {
						for range 40 {
							assert.NoError(t, do(t.Context(), g, strconv.Itoa(i), true))
						}
					})
				}
				all.Wait()
				require.EqualValues(t, batches, most.Load())
			})
		})
	}
}
