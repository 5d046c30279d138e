package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/rules"
	"github.com/httplatch/httplatch/lock"
)

func TestDurations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		d    rules.Durations
		want string // "": nothing is wrong
	}{
		{rules.Durations{Lease: time.Second, MaxHold: time.Second, Budget: 500 * time.Millisecond}, ""},
		{
			rules.Durations{Lease: time.Second - 1, MaxHold: time.Second, Budget: 500 * time.Millisecond},
			"a lease of 999.999999ms is too short for a budget of 500ms: a claim that was answered late would be over " +
				"before its work began; the lease must be at least twice the budget",
		},
		{
			rules.Durations{Lease: time.Second, MaxHold: time.Second - 1, Budget: time.Millisecond},
			"a maximum hold of 999.999999ms is shorter than the lease of 1s",
		},
	} {
		if err := tt.d.Validate(); tt.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, tt.want)
		}
	}
	for d, want := range map[time.Duration]string{1: "", 0: "the duration must be positive", -1: "the duration must be positive"} {
		if err := rules.Positive(d); want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, want)
		}
	}
}

func TestOfALocker(t *testing.T) {
	t.Parallel()
	l := lock.New(lock.NewMemory(), lock.WithBudget(time.Second)).With(lock.WithLease(3 * time.Second))
	require.Equal(t, rules.Durations{Lease: 3 * time.Second, MaxHold: 15 * time.Minute, Budget: time.Second}, rules.DurationsOf(l))
}
