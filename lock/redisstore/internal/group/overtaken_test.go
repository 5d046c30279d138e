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
	"github.com/httplatch/httplatch/lock/redisstore/internal/group"
)

// A batch whose reply is late while others that left later are answered is given up by
// its members, which are sent again at once, if there are tokens.
func TestOvertakenBatchIsSentAgain(t *testing.T) {
	t.Parallel()
	const (
		budget   = 90 * time.Millisecond // time alone gives a token in 100 ms
		third    = budget / 3
		late     = 80 * time.Millisecond
		overtake = 4 // that many others
		tick     = 5 * time.Millisecond
	)
	for name, tt := range map[string]struct {
		others int           // at once
		trip   time.Duration // of each
		size   int           // of the late one
		late   time.Duration
		tokens int
		took   time.Duration
		sends  int64
	}{
		"overtaken":                   {overtake, time.Millisecond, 0, late, 1, 10 * time.Millisecond, 2},
		"by too few":                  {overtake - 1, time.Millisecond, 0, late, 1, third, 2},
		"where round trips take long": {overtake, 9 * time.Millisecond, 0, late, 1, third + 8*time.Millisecond, 2},
		"large":                       {overtake, time.Millisecond, 16<<10 + 1, late, 1, third, 2},
		"a little late":               {overtake, time.Millisecond, 0, 7 * time.Millisecond, 1, 7 * time.Millisecond, 1},
		"no token":                    {overtake, time.Millisecond, 0, late, 0, late, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var sends atomic.Int64
				g := newGroup(32, 2*overtake, false, func(ctx context.Context, names []string, reply func(string)) error {
					if names[0] == "late" && sends.Add(1) == 1 {
						return answerAll(tt.late)(ctx, names, reply)
					}
					return answerAll(tt.trip)(ctx, names, reply)
				})
				for range 100 { // so that the group knows the usual trip
					require.NoError(t, do(t.Context(), g, "other", true))
				}
				s := newSender()
				for s.Retries.Tokens() > tt.tokens {
					s.Retries.Take()
				}
				var all sync.WaitGroup
				all.Go(func() {
					began := time.Now()
					err := send.Do(t.Context(), s, new(send.Call), send.Terms{Budget: budget}, sized{request{g, "late", true}, tt.size})
					assert.NoError(t, err)
					assert.InDelta(t, tt.took, time.Since(began), float64(tick+time.Millisecond))
				})
				synctest.Wait()
				for range tt.others {
					all.Go(func() { assert.NoError(t, do(t.Context(), g, "other", true)) })
				}
				all.Wait()
				require.Equal(t, tt.sends, sends.Load())
				time.Sleep(late)
			})
		})
	}
}

// sized is a claim of a given size in bytes.
type sized struct {
	request

	bytes int
}

func (r sized) Send(ctx context.Context) error {
	c := group.NewCommand(r.name)
	c.Load, c.Yields = make(group.Load, r.bytes), r.yields
	_, err := r.g.Do(ctx, c.With("command", r.name, &c.Load))
	return err
}

// One late reply in a thousand delays few calls: it must not delay its whole batch, which was
// thirty times as many calls.
func TestLateRepliesAreOfFewCalls(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "simulates hundreds of callers")
	t.Parallel()
	const callers, calls = 64, 300
	synctest.Test(t, func(t *testing.T) {
		var commands atomic.Int64
		g := newGroup(32, 32, false, func(ctx context.Context, names []string, reply func(string)) error {
			n := int64(len(names))
			if commands.Add(n)%1000 < n {
				return answerAll(100*time.Millisecond)(ctx, names, reply)
			}
			return answerAll(300*time.Microsecond)(ctx, names, reply)
		})
		s := newSender()
		var mu sync.Mutex
		var took []time.Duration
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for range calls {
					began := time.Now()
					_, err := call(t.Context(), s, g, strconv.Itoa(i), 500*time.Millisecond)
					assert.NoError(t, err)
					mu.Lock()
					took = append(took, time.Since(began))
					mu.Unlock()
				}
			})
		}
		all.Wait()
		slices.Sort(took)
		require.Less(t, took[len(took)*99/100], 15*time.Millisecond)
		require.Less(t, float64(commands.Load()), 1.05*callers*calls)
		time.Sleep(time.Second)
	})
}
