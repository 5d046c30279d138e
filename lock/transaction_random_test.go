package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// Under random faults of a database and its network, each key gets an answer in the end, all its
// callers get the same one, and the key has one row, with that answer.
func TestTransactionsAtRandom(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "searches at random")
	t.Parallel()
	rare := make(map[string]int)
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		found := newOrders(seed, "").run(t, rare)
		require.Empty(t, found, "seed %d", seed)
	}
	t.Log(rare)
	for _, path := range []string{"aborted", "unavailable", "unknown", "lost", "replayed", "silent", "late"} {
		require.NotZero(t, rare[path], "no %s", path)
	}
}

// And the check finds each database that gets it wrong.
func TestTransactionsAtRandomFindDefects(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "searches at random")
	t.Parallel()
	for _, defect := range []faketx.Defect{faketx.Autocommit, faketx.Apart, faketx.Trusting} {
		t.Run(string(defect), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(300) {
				if found := newOrders(seed, defect).run(t, make(map[string]int)); len(found) > 0 {
					t.Logf("seed %d: %s", seed, strings.Join(found, "; "))
					return
				}
			}
			t.Error("nothing was found")
		})
	}
}

// orders are placed by clients that repeat until they have an answer.
type orders struct {
	plan   *rand.Rand
	defect faketx.Defect

	mu      sync.Mutex
	runs    int
	answers map[string][]string
	found   []string
	rare    map[string]int
}

func newOrders(seed uint64, defect faketx.Defect) *orders {
	return &orders{plan: rand.New(rand.NewPCG(seed, 1)), defect: defect, answers: make(map[string][]string)}
}

func (o *orders) draw(n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.plan.IntN(n)
}

func (o *orders) bad(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.found = append(o.found, fmt.Sprintf(format, args...))
}

// fault returns a random fault for one step.
func (o *orders) fault(s *faketx.Store, step faketx.Step) faketx.Fault {
	return func(ctx context.Context, apply func() error) error {
		kind := o.draw(40)
		if s.Count(step) > 200 { // so that it ends
			return apply()
		}
		late := time.Duration(o.draw(int(3 * lease)))
		switch {
		case kind == 0:
			return faketx.LoseReply(ctx, apply)
		case kind == 1 && step != faketx.Begin:
			return faketx.LoseRequest(ctx, apply)
		case kind == 2:
			return faketx.HangReply(ctx, apply)
		case kind == 3, step == faketx.Outcome && kind > 20:
			return faketx.Hang(ctx, apply)
		case kind == 4 && step != faketx.Begin && step != faketx.Outcome && step != faketx.Rollback:
			o.note("late")
			return faketx.Late(late)(ctx, apply)
		case kind == 5:
			return faketx.Slow(late/10)(ctx, apply)
		case kind == 6 && step == faketx.Commit:
			return faketx.Conflict(ctx, apply)
		case kind == 7 && step != faketx.Rollback && step != faketx.Outcome:
			return faketx.Refuse(nil)(ctx, apply)
		}
		return apply()
	}
}

func (o *orders) note(path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rare[path]++
}

var orderKeys = []string{"k=0", "k=1", "k=2"}

// run plays all orders, and returns the violations.
func (o *orders) run(t *testing.T, rare map[string]int) []string {
	t.Helper()
	o.rare = rare
	synctest.Test(t, func(t *testing.T) {
		s := faketx.New()
		s.Break(o.defect)
		for _, step := range []faketx.Step{
			faketx.Claim, faketx.Renew, faketx.Release, faketx.Settle, faketx.Begin, faketx.Commit, faketx.Outcome, faketx.Rollback,
		} {
			s.Every(step, o.fault(s, step))
		}
		var lockers []*lock.Locker
		for range 3 {
			lockers = append(lockers, lock.New(s, append(txOptions(), lock.WithMaxHold(lease+time.Second), lock.WithWait(time.Duration(o.draw(int(lease)))+1))...))
		}
		var clients sync.WaitGroup
		for range 12 {
			l, key, at := lockers[o.draw(3)], orderKeys[o.draw(3)], time.Duration(o.draw(int(2*lease)))
			clients.Go(func() { time.Sleep(at); o.client(l, key) })
		}
		clients.Wait()
		for _, l := range lockers {
			for _, key := range orderKeys {
				o.client(l, key)
			}
		}
		time.Sleep(time.Minute)
		for _, l := range lockers {
			if err := l.Close(t.Context()); err != nil {
				o.bad("close: %v", err)
			}
		}
		o.judge(s.Effects())
	})
	return o.found
}

// client repeats an order until it has an answer.
func (o *orders) client(l *lock.Locker, key string) {
	for range 1000 {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		receipt, replayed, err := l.Once(ctx, key, print1, func(ctx context.Context) ([]byte, error) { return o.work(ctx, key) })
		cancel()
		if err == nil {
			if replayed {
				o.note("replayed")
			}
			o.mu.Lock()
			o.answers[key] = append(o.answers[key], string(receipt))
			o.mu.Unlock()
			return
		}
		o.refused(err)
		time.Sleep(time.Duration(o.draw(int(time.Second))))
	}
	o.bad("%s has no answer", key)
}

func (o *orders) refused(err error) {
	switch {
	case errors.Is(err, lock.ErrAbandoned):
		o.bad("an outcome is unknown for good")
	case errors.Is(err, lock.ErrLost):
		o.note("lost")
	case errors.Is(err, lock.ErrUnknown) && strings.Contains(err.Error(), "commit got no answer"):
		o.note("unknown")
	case strings.Contains(err.Error(), "commit got no answer, and all was rolled back"):
		o.note("silent")
	case errors.Is(err, lock.ErrUnavailable):
		o.note("unavailable")
	case errors.Is(err, lock.ErrNotApplied):
		o.note("aborted")
	}
}

func (o *orders) work(ctx context.Context, key string) ([]byte, error) {
	o.mu.Lock()
	o.runs++
	row := fmt.Sprintf("%s/%d", key, o.runs)
	how := o.plan.IntN(12)
	takes := time.Duration(o.plan.Int64N(int64(lease / 4)))
	if how == 0 {
		takes = time.Duration(o.plan.Int64N(int64(4 * lease)))
	}
	o.mu.Unlock()
	if err := faketx.Insert(ctx, row); err != nil {
		return nil, err
	}
	time.Sleep(takes)
	switch how {
	case 1:
		return nil, errWork
	case 2:
		_ = faketx.Fail(ctx)
	}
	return []byte(row), nil
}

// judge checks the rows and the answers after the last call.
func (o *orders) judge(effects []string) {
	for _, key := range orderKeys {
		rows := slices.DeleteFunc(slices.Clone(effects), func(row string) bool { return !strings.HasPrefix(row, key+"/") })
		answers := slices.Compact(slices.Sorted(slices.Values(o.answers[key])))
		if len(rows) != 1 || !slices.Equal(rows, answers) {
			o.bad("%s has the rows %v and the answers %v", key, rows, answers)
		}
	}
}
