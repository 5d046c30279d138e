package suite_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/bench/internal/suite"
	"github.com/httplatch/httplatch/bench/internal/web"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// TestMain is a worker of the suite too, and plays its scenarios: it starts this
// program again.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == suite.WorkerArg {
		if err := suite.Work(context.Background(), os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == suite.ScenarioArg {
		if err := suite.PlayScenario(context.Background(), os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(pgtest.Main(redistest.Main(m)).Run())
}

func settings(t *testing.T, parts ...string) suite.Settings {
	t.Helper()
	redistest.Shared(t) // skips where there is no server
	return suite.Settings{
		Rounds: 1, Window: 20 * time.Millisecond, Pool: 20, Rate: 500, Keys: []int{10, 1000}, Many: 500,
		Receipts: []int{10, 100}, Play: 3 * time.Second,
		Parts: parts, Log: t.Output(),
	}
}

// measured is one part. A machine that stands still for a second fails all calls
// that are under way, which is an error where a window is as short as that; it
// does not do so every time.
func measured(t *testing.T, part string) *stats.Samples {
	t.Helper()
	s, err := suite.Run(t.Context(), settings(t, part))
	for again := 0; err != nil && again < 2; again++ {
		t.Logf("once more: %v", err)
		s, err = suite.Run(t.Context(), settings(t, part))
	}
	require.NoError(t, err)
	return s
}

// Every part comes to figures of every contender. None is zero, except for round
// trips, where that is the point of some, and what is done in time, which on a
// busy machine may be zero in a window as short as that.
func TestEveryPart(t *testing.T) {
	for part, want := range map[string]struct {
		metric       string
		cases, whos  int
		mayBeNothing bool
	}{
		suite.InProcess:  {metric: suite.Nanos, cases: 1, whos: 3},
		suite.RoundTrips: {metric: suite.Trips, cases: 4, whos: 8 + 3, mayBeNothing: true},
		suite.Cycles:     {metric: suite.ClientCPU, cases: len(suite.Callers), whos: 8},
		suite.Contended:  {metric: suite.Rate, cases: 2, whos: 8, mayBeNothing: true},
		suite.Latency:    {metric: suite.Rate, cases: len(suite.FarCallers), whos: 8, mayBeNothing: true},
		suite.Crowd:      {metric: suite.Rate, cases: 3, whos: 8, mayBeNothing: true},
		suite.Stalls:     {metric: suite.P999, cases: 3, whos: 8},
		suite.HTTP:       {metric: suite.P50, cases: 2, whos: 10 + 4},
		suite.Growth:     {metric: suite.Beside, cases: 2, whos: 2},

		suite.Transactions: {metric: suite.P50, cases: 3 * len(suite.Buyers), whos: 3 + 1},
		suite.Receipts:     {metric: suite.P50, cases: 2, whos: 3},
		suite.CleanUp:      {metric: suite.EndSize, cases: 1, whos: 1},
	} {
		t.Run(part, func(t *testing.T) {
			if slices.Contains([]string{suite.Transactions, suite.Receipts, suite.CleanUp}, part) {
				pgtest.DatabaseURL(t) // skips where there is no server
			}
			s := measured(t, part)
			require.Len(t, s.Cases(part, want.metric), want.cases)
			require.Len(t, s.Whos(part, want.metric), want.whos)
			for _, kase := range s.Cases(part, want.metric) {
				for _, who := range s.Whos(part, want.metric) {
					for _, v := range s.Of(stats.Name{Part: part, Case: kase, Who: who, Metric: want.metric}) {
						require.True(t, want.mayBeNothing || v > 0, "%s, %s: %v", kase, who, v)
					}
				}
			}
		})
	}
}

// What every peer and every guard sends is known, so that the counting can be
// checked by it.
func TestRoundTripsAreCountedAtTheServer(t *testing.T) {
	s := measured(t, suite.RoundTrips)
	for _, want := range []struct {
		kase, who string
		trips     float64
	}{
		{suite.TripsOfCycle, peer.Bare, 2},
		{suite.TripsOfCycle, "bsm/redislock", 2}, // two scripts, each of which calls two commands
		{suite.TripsOfFirst, web.FiberOnceRedis, 3},
		{suite.TripsOfReplay, web.FiberOnceRedis, 1},
		{suite.TripsOfDuplicate, web.LockRedis, 0},
	} {
		name := stats.Name{Part: suite.RoundTrips, Case: want.kase, Who: want.who, Metric: suite.Trips}
		require.Equal(t, []float64{want.trips}, s.Of(name), "%v", name)
	}
}

func TestRunRefusesAPartThatThereIsNot(t *testing.T) {
	_, err := suite.Run(t.Context(), suite.Settings{Parts: []string{"cycle"}})
	require.EqualError(t, err, `bench: no part "cycle"; there are in-process, trips, cycles, contended, latency, crowd, stalls, http, growth, overload, outage, transactions, receipts, clean-up`)
}

func TestACancelledRunEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := suite.Run(ctx, settings(t, suite.Cycles))
	require.ErrorIs(t, err, context.Canceled)
}

func TestAWorkerTellsWhatIsWrong(t *testing.T) {
	for _, tt := range []struct{ name, job, want string }{
		{"no such job", `{"Kind":"nap"}`, `no kind of job "nap"`},
		{"no such peer", `{"Kind":"refusals","Peer":"unknown"}`, `no peer "unknown"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			require.NoError(t, suite.Work(t.Context(), strings.NewReader(tt.job), &out))
			var answer struct{ Error string }
			require.NoError(t, json.Unmarshal([]byte(out.String()), &answer))
			require.Equal(t, tt.want, answer.Error)
		})
	}
	require.Error(t, suite.Work(t.Context(), strings.NewReader("not JSON"), io.Discard))
}

// A worker that asks for a key that has no holder must not count grants as
// refusals.
func TestAWorkerSeesThatItsKeyIsFree(t *testing.T) {
	job, err := json.Marshal(map[string]any{
		"Kind": "refusals", "Peer": peer.Bare, "Addr": redistest.Shared(t).Addr(), "Pool": 4, "Callers": 4, "Window": time.Millisecond,
	})
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, suite.Work(t.Context(), strings.NewReader(string(job)+"{}"), &out))
	require.Contains(t, out.String(), "a key that is held was granted")
}
