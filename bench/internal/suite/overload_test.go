package suite_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/bench/internal/suite"
)

// The long parts have figures of the scenarios that were asked for, and of no
// others.
func TestLongParts(t *testing.T) {
	set := settings(t, suite.Overload, suite.Outage)
	set.Load, set.Then, set.Recovery = time.Second, 2*time.Second, 4*time.Second
	set.Outages = []time.Duration{time.Second}
	set.Only = regexp.MustCompile("^(0.5 C|600 callers|1 s of silence), Open")
	s, err := suite.Run(t.Context(), set)
	require.NoError(t, err)
	require.Equal(t, []string{"0.5 C", "600 callers"}, s.Cases(suite.Overload, suite.Goodput))
	require.Equal(t, []string{"1 s of silence"}, s.Cases(suite.Outage, suite.FirstGrant))
	require.Equal(t, []string{"Open"}, s.Whos(suite.Outage, suite.FirstGrant))
	require.Len(t, s.Cases(suite.OverTime("600 callers"), suite.Rate), 3)
	for _, metric := range []string{suite.Bare, suite.Goodput, suite.Commands, suite.Served50, suite.Goroutines, suite.Heap} {
		found := s.Of(stats.Name{Part: suite.Overload, Case: "0.5 C", Who: "Open", Metric: metric})
		require.Len(t, found, 1, metric)
		require.Positive(t, found[0], metric)
	}
}

func TestAScenarioTellsWhatIsWrong(t *testing.T) {
	settings(t) // skips where there is no server
	var out strings.Builder
	require.NoError(t, suite.PlayScenario(t.Context(), strings.NewReader(`{"Constructor":"Nap"}`), &out))
	require.Contains(t, out.String(), `no constructor \"Nap\"`)
	require.Error(t, suite.PlayScenario(t.Context(), strings.NewReader("not JSON"), &out))
}
