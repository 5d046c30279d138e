package lock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/overload"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// roomCommands is the number of commands that the server of these tests can execute in a second. A
// cycle is two commands. The real rate is measured in the same run.
const roomCommands = 1500

// narrow starts a server that can execute a number of commands a second, or any
// number if it is 0.
func narrow(t *testing.T, perSecond int) *overload.Proxy {
	t.Helper()
	port := must.Get(process.FreePort())(t)
	p := must.Get(overload.StartProxy(port, redistest.Start(t).Addr(), perSecond))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

// crowded makes a Locker with the default budget. Its end does not wait for clean-ups: the
// server goes, with all its entries.
func crowded(t *testing.T, addr string, as func(*redisstore.Store) lock.Store) (l *lock.Locker, end func()) {
	t.Helper()
	opened := must.Get(redisstore.Open(t.Context(), "redis://"+addr))(t)
	l = lock.New(as(opened), lock.WithLogger(quiet))
	return l, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 100*time.Millisecond)
		defer cancel()
		_ = l.Close(ctx) // may leave something
		require.NoError(t, opened.Close())
	}
}

// limited is the store as it is, and unlimited is its twin without the part that limits the load of the server.
func limited(s *redisstore.Store) lock.Store   { return s }
func unlimited(s *redisstore.Store) lock.Store { return endless{s} }

// overloads are loads that the server has too little room for, and a stall, which can cause a collapse that
// outlives it.
var overloads = map[string]overload.Load{
	"600 callers":    {Callers: 600, For: 3 * time.Second, Then: 2 * time.Second},
	"5 C":            {PerSecond: 5 * roomCommands / 2, For: 3 * time.Second, Then: 2 * time.Second},
	"0.8 C, a stall": {PerSecond: 0.8 * roomCommands / 2, For: 4 * time.Second, Stall: 400 * time.Millisecond},
}

// wrongUnder lists the mistakes in the outcome of a load. The bounds are far from the usual
// figures, since other tests run on the machine, and farther still from a collapse.
func wrongUnder(load overload.Load, room float64, o overload.Outcome) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if room < roomCommands/4 {
		say("the server itself did only %.0f cycles a second", room)
	}
	total := overload.Total(o.Seconds)
	enough := 0.6 * room
	last := o.Seconds[len(o.Seconds)-1]
	if offered := load.PerSecond; offered > 0 {
		enough = min(enough, 0.8*offered)
	}
	if rate := float64(total.Done) / load.For.Seconds(); load.Stall == 0 && rate < enough {
		say("%.0f cycles a second, of a room of %.0f", rate, room)
	}
	if float64(last.Done) < enough {
		say("%d cycles in the last second, of a room of %.0f", last.Done, room)
	}
	if n := total.Failed[overload.Unknown]; n > total.Done/4 {
		say("%d claims without an answer beside %d cycles", n, total.Done)
	}
	for _, kind := range []overload.Kind{overload.CleanUp, overload.Held, overload.Other} {
		if n := total.Failed[kind]; n > 0 {
			say("%d %s", n, kind)
		}
	}
	if len(o.After) > 1 {
		if done := o.After[1].Done; float64(done) < 0.6*room {
			say("%d cycles in the second second after the load, of a room of %.0f", done, room)
		}
	}
	return wrong
}

// underLoad puts a load on a new Locker, and returns the violations.
func underLoad(t *testing.T, load overload.Load, as func(*redisstore.Store) lock.Store) (wrong []string, late time.Duration) {
	t.Helper()
	proxy := narrow(t, roomCommands)
	room := must.Get(redistest.Room(t.Context(), proxy.Addr(), 500*time.Millisecond))(t)
	l, end := crowded(t, proxy.Addr(), as)
	defer end()
	o := load.Run(t.Context(), l, proxy)
	total := overload.Total(o.Seconds)
	t.Logf("room %.0f; %d cycles and %d commands in %v; %v failed; then %d; timers late by %v",
		room, total.Done, total.Commands, load.For, total.Failed, overload.Done(o.After), o.Timers.P99)
	return wrongUnder(load, room, o), o.Timers.P99
}

// undisturbed returns the violations of a run that the machine did not disturb: a machine that
// stops for a while delays callers that the library serves in time. It does not stop in every run.
func undisturbed(t *testing.T, run func() (wrong []string, late time.Duration)) []string {
	t.Helper()
	const muchTooLate = 8 * time.Millisecond
	wrong, late := run()
	for again := 0; len(wrong) > 0 && late > muchTooLate && again < 2; again++ {
		t.Logf("once more, since timers were late by %v: %v", late, wrong)
		wrong, late = run()
	}
	return wrong
}

func TestOverload(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "measures time")
	for name, load := range overloads {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, undisturbed(t, func() ([]string, time.Duration) { return underLoad(t, load, limited) }))
		})
	}
}

// Without the part that holds the load off, the server collapses.
func TestOverloadCatches(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "measures time")
	wrong, _ := underLoad(t, overloads["5 C"], unlimited)
	require.NotEmpty(t, wrong)
}

// A server that is well refuses no caller, whether it is busy or meets a thousand of them at once.
func TestHealthyServerRefusesNoCaller(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "measures time")
	t.Run("steady at 0.8 C", func(t *testing.T) {
		load := overload.Load{PerSecond: 0.8 * roomCommands / 2, For: 2 * time.Second}
		require.Empty(t, undisturbed(t, func() ([]string, time.Duration) {
			proxy := narrow(t, roomCommands)
			l, end := crowded(t, proxy.Addr(), limited)
			defer end()
			o := load.Run(t.Context(), l, proxy)
			return refused("steady", overload.Total(o.Seconds).Failed, 0), o.Timers.P99
		}))
	})
	t.Run("bursts of 1,000", func(t *testing.T) {
		require.Empty(t, undisturbed(t, func() (wrong []string, late time.Duration) {
			l, end := crowded(t, narrow(t, 0).Addr(), limited)
			defer end()
			for burst := range 4 {
				allowed := int64(0)
				if burst == 0 {
					allowed = 10 // nothing is known of the server
				}
				b := overload.Burst(t.Context(), l, 1000)
				wrong = append(wrong, refused(fmt.Sprintf("burst %d", burst), b.Failed, allowed)...)
				late = max(late, b.Timers.P99)
				time.Sleep(100 * time.Millisecond)
			}
			return wrong, late
		}))
	})
}

// refused returns a mistake if more callers than allowed were not served.
func refused(when string, failed overload.Failures, allowed int64) []string {
	if failed.All() <= allowed {
		return nil
	}
	return []string{fmt.Sprintf("%s: %v not served", when, failed)}
}

// endless passes claims on without the time that they have, so that the store
// cannot know which of them would be too late.
type endless struct{ *redisstore.Store }

func (s endless) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return s.Store.Claim(noDeadline{ctx}, key, c)
}

type noDeadline struct {
	context.Context //nolint:containedctx // it is one
}

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }
