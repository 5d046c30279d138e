package day_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/day"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/internal/testkit/must"
)

var (
	orders  = flag.Int("day.orders", 0, "orders of a day; 0: a small one, of which the promises are checked")
	seed    = flag.Uint64("day.seed", 1, "of customers, latencies and faults")
	rate    = flag.Float64("day.rate", 1, "how many times the incident's rate of losses")
	only    = flag.String("day.only", "", "contenders, as a regular expression")
	ttls    = flag.String("day.ttls", "30s", "of the locks, separated by commas")
	figures = flag.String("day.figures", "", "the file to which what a day has come to is added, a line of JSON each")
	days    = flag.Int("day.days", 100, "short days of TestDays")
	during  = flag.Duration("day.for", 0, "how long TestDays plays as many with other seeds, until one breaks a promise")
)

func TestMain(m *testing.M) {
	// Lua in Go makes much garbage beside few live keys: half of the time went to collecting it.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(6 << 30)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	logging.Disable()
	os.Exit(m.Run())
}

// connections is more than a desk uses: each call during a pause keeps one until the pause ends. A
// call without one would wait by a timer that go-redis shares among bubbles.
const connections = 10_000

// often is how long customers wait between two tries where no refusal shall go unseen.
const often = 5 * time.Second

func play(t *testing.T, c day.Config) (out day.Outcome) {
	t.Helper()
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		out = must.Get(day.Run(t.Context(), c))(t)
	})
	out.Wall = time.Since(began)
	return out
}

func contender(t *testing.T, name string) day.Contender {
	t.Helper()
	for _, c := range append(day.Contenders(), day.Twins()...) {
		if c.Name == name {
			return c
		}
	}
	require.Fail(t, "no such contender", name)
	return day.Contender{}
}

func ours() (all []day.Contender) {
	for _, c := range day.Contenders() {
		if strings.HasPrefix(c.Name, peer.Ours) {
			all = append(all, c)
		}
	}
	return all
}

// broken says which promises an outcome has broken.
//
// A desk that lives gives back what it held: its customer has come back for the second time at
// most in 450 such days, which is four seconds after the first.
func broken(out day.Outcome, lockedOut, longest time.Duration) (all []string) {
	const stuck = 25 * time.Second
	say := func(is bool, what string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(what, args...))
		}
	}
	say(lockedOut > longest, "locked out for %v", lockedOut)
	say(out.Stuck > stuck, "stuck for %v, by desks that live", out.Stuck)
	say(out.Doubled > out.Forgotten, "%d orders placed twice", out.Doubled-out.Forgotten)
	say(out.Lost > 0, "%d orders lost", out.Lost)
	say(out.FalsePlaced > 0, "%d false answers: placed", out.FalsePlaced)
	say(out.FalseFailed > 0, "%d false answers: not placed", out.FalseFailed)
	return all
}

// A day at fifty thousand times the incident's rate: this library locks next to nobody out,
// and nobody for longer than a lease; without one of its parts it locks out more than a
// few, and the incident's policy does for hours.
func TestDay(t *testing.T) {
	const ttl, few = 30 * time.Second, 20
	if *orders > 0 {
		t.Skip("the small day: -day.orders asks for another")
	}
	small := func(t *testing.T, c day.Contender, ttl, wait time.Duration) day.Outcome {
		t.Helper()
		out := play(t, day.Config{Contender: c, TTL: ttl, Orders: 20_000, Seed: *seed, Loss: 50_000 * day.Rate, Twice: 0.2, Wait: wait, Pool: connections})
		t.Logf("locked out %d, for %v at most, refused for %v", out.LockedOut, out.Longest, out.Refused)
		return out
	}
	for _, c := range ours() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			out := small(t, c, ttl, often)
			require.Empty(t, broken(out, out.Refused, ttl), strings.Join(out.Traces, "\n")) // a customer whose next request is lost is locked out for longer
			require.Less(t, out.LockedOut, few, strings.Join(out.Traces, "\n"))
		})
	}
	for _, c := range day.Twins() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			require.Greater(t, small(t, c, ttl, 0).LockedOut, few)
		})
	}
	t.Run(peer.IncidentName, func(t *testing.T) {
		t.Parallel()
		require.Greater(t, small(t, contender(t, peer.IncidentName), 2*time.Hour, 0).Longest, time.Hour)
	})
}

// Many short days in which much goes wrong. What is broken is printed with its seed and
// what has happened to the order.
func TestDays(t *testing.T) {
	for began, next := time.Now(), *seed; ; next += uint64(*days) {
		t.Run(fmt.Sprintf("from seed %d", next), func(t *testing.T) { playShortDays(t, next) })
		if t.Failed() || time.Since(began) >= *during {
			return
		}
	}
}

func playShortDays(t *testing.T, from uint64) {
	t.Helper()
	for i := range *days {
		c := ours()[i%len(ours())]
		s := from + uint64(i)
		ttl, slack := 10*time.Second, time.Minute // what comes late may hold a key for as long
		if i/len(ours())%4 == 3 {
			ttl, slack = 3*time.Minute, time.Hour // keys that living desks keep are seen; several may be killed that have one key in turn
		}
		t.Run(fmt.Sprintf("%s, seed %d", c.Name, s), func(t *testing.T) {
			t.Parallel()
			out := play(t, short(c, ttl, s))
			require.Empty(t, broken(out, out.Refused, ttl+slack), strings.Join(out.Traces, "\n"))
		})
	}
}

func short(c day.Contender, ttl time.Duration, seed uint64) day.Config {
	d := day.Config{
		Contender: c, TTL: ttl, Orders: 300, Seed: seed, Loss: 0.02, Length: 30 * time.Minute, Desks: 3, Again: 0.2, Long: 0.02,
		Keep: day.Long,
		Wait: often,
		Pool: connections,
	}
	if ttl > time.Minute {
		d.Again, d.Long = 0.5, 0.2
	}
	return d
}

// Each promise is looked at: guards that break one are found, with a trace.
func TestDaysCatch(t *testing.T) {
	for _, c := range append(day.Broken(), contender(t, peer.IncidentName)) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			want := c.Name
			if want == peer.IncidentName {
				want = "locked out"
			}
			for s := range uint64(100) {
				out := play(t, short(c, 2*time.Hour, s))
				if wrong := broken(out, out.Refused, time.Hour); strings.Contains(strings.Join(wrong, " "), want) {
					require.NotEmpty(t, out.Traces)
					return
				}
			}
			require.Fail(t, "nothing was found")
		})
	}
}

// A key that a living desk keeps is found, though its lease ends long before anybody is locked out for
// an hour.
func TestDaysCatchKeptKeys(t *testing.T) {
	kept := func(t *testing.T, name string, seed uint64) bool {
		t.Helper()
		d := short(contender(t, name), 3*time.Minute, seed)
		d.Loss = 0.1
		return strings.Contains(strings.Join(broken(play(t, d), 0, time.Hour), " "), "stuck")
	}
	require.False(t, kept(t, peer.Ours+", Lock", 0))
	for s := range uint64(100) {
		if kept(t, "a release without an answer is not repeated", s) {
			return
		}
	}
	require.Fail(t, "nothing was found")
}

// TestFigures plays the days that it is asked for, and keeps what they have come to.
func TestFigures(t *testing.T) {
	if *orders == 0 {
		t.Skip("-day.orders says how many")
	}
	wanted := regexp.MustCompile(*only)
	for text := range strings.SplitSeq(*ttls, ",") {
		ttl := must.Get(time.ParseDuration(text))(t)
		for _, c := range append(day.Contenders(), day.Twins()...) {
			if !wanted.MatchString(c.Name) {
				continue
			}
			out := play(t, day.Config{Contender: c, TTL: ttl, Orders: *orders, Seed: *seed, Loss: *rate * day.Rate})
			r := day.Record{Name: c.Name, TTL: ttl, Rate: *rate, Seed: *seed, Outcome: out}
			require.NoError(t, day.WriteTables(os.Stdout, []day.Record{r}))
			t.Log(strings.Join(out.Traces, "\n"))
			if *figures != "" {
				require.NoError(t, r.Append(*figures))
			}
		}
	}
}

// The page has the tables of the figures that are kept.
func TestPageHasTheTables(t *testing.T) {
	t.Parallel()
	all := must.Get(day.Load("../../day.json"))(t)
	var tables strings.Builder
	require.NoError(t, day.WritePage(&tables, all))
	page := must.Get(os.ReadFile("../../../docs/evidence/day.md"))(t)
	require.Equal(t, string(page), tables.String(), "make day-page writes it")
}
