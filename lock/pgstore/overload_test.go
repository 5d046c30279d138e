package pgstore_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// asked counts the outcomes of requests, each for its own order.
type asked struct {
	done    int
	refused []time.Duration // how long each refusal took
	unknown int
	longest time.Duration
	last    error
}

// askFor makes perSecond orders a second, independent of each other, as customers do.
func askFor(t *testing.T, l *lock.Locker, perSecond int, d time.Duration) (a asked) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for i := range int(d.Seconds() * float64(perSecond)) {
		<-tick.C
		all.Go(func() {
			began := time.Now()
			_, _, err := l.Once(t.Context(), fmt.Sprint(i), nil, order(fmt.Sprint(i)))
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			a.longest = max(a.longest, took)
			switch {
			case err == nil:
				a.done++
				return
			case errors.Is(err, lock.ErrUnknown):
				a.unknown++
			}
			a.refused, a.last = append(a.refused, took), err
		})
	}
	all.Wait()
	slices.Sort(a.refused)
	return a
}

// wrong returns the broken promises of an overload, at a database with room for rate requests
// a second. The bounds are far from the usual figures, since other tests run on the machine.
func (a *asked) wrong(rate int, d time.Duration) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if least := int(0.6 * float64(rate) * d.Seconds()); a.done < least {
		say("%d done, at least %d are possible", a.done, least)
	}
	if len(a.refused) == 0 {
		return append(wrong, "none refused: this is no overload")
	}
	if p50 := a.refused[len(a.refused)/2]; p50 > 100*time.Millisecond {
		say("refusals take %v", p50)
	}
	if a.unknown > len(a.refused)/20 {
		say("%d of %d refusals are not certain: %v", a.unknown, len(a.refused), a.last)
	}
	if a.longest > 8*time.Second {
		say("one took %v", a.longest)
	}
	return wrong
}

// slowShop is a shop at the end of a line on which each answer takes 10 ms: its own 4
// connections have room for 400 claims a second, and 4 of the work for 100 orders, which
// take four answers each.
func slowShop(t *testing.T) *shop {
	t.Helper()
	proxy := sqlproxy.Postgres(t, pgtest.Shared(t).Addr(), func(*sqlproxy.Exchange) sqlproxy.Fault {
		return sqlproxy.Fault{Action: sqlproxy.DelayReply, Delay: 10 * time.Millisecond}
	})
	return openShop(t, func(db string) string { return proxy.URL(db, "postgres") }, func(cfg *pgxpool.Config) { cfg.MaxConns = 4 })
}

// usualBudget is the budget of a Locker without options.
var usualBudget = lock.WithBudget(500 * time.Millisecond)

// TestOverload asks for eight times as many orders as there is room for. The others are
// refused at once, and not placed, unless their outcome is unknown.
func TestOverload(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "measures orders for 3 s")
	t.Parallel()
	const room, d = 100, 3 * time.Second
	s := slowShop(t)
	a := askFor(t, s.locker(t, usualBudget), 8*room, d)
	t.Logf("%d done, %d refused, %d of them unknown, the longest call %v, last: %v", a.done, len(a.refused), a.unknown, a.longest, a.last)
	require.Empty(t, a.wrong(room, d))
	placed := len(s.orders(t))
	require.GreaterOrEqual(t, placed, a.done)
	require.LessOrEqual(t, placed, a.done+a.unknown)
}
