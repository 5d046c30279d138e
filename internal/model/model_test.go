package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A search of fewer states than this has not tried much.
const fewStates = 1000

func TestModel(t *testing.T) {
	t.Parallel()
	tools := findTools(t)
	for name, tt := range map[string]struct {
		model   string
		defines []string
		breaks  string // the variable of the property that must not hold
		reaches string // the process that must have come to its end in some execution
	}{
		"orphan/a time-out is read as not taken": {
			model:   "orphan.pml",
			defines: []string{"SENDS=1", "GUARDED=0", "REAP=NOT"},
			breaks:  "orphan",
		},
		"orphan/one delete right after the time-out": {
			model:   "orphan.pml",
			defines: []string{"SENDS=1", "GUARDED=0", "REAP=ANY"},
			breaks:  "orphan",
		},
		// A server that was stalled may take the delete before the claim.
		"orphan/one delete after the landing": {
			model:   "orphan.pml",
			defines: []string{"SENDS=1", "GUARDED=0", "REAP=LANDED"},
			breaks:  "orphan",
		},
		// It may have answered the first delete before the claim landed, and have
		// been stalled after that.
		"orphan/two deletes, the first before the landing": {
			model:   "orphan.pml",
			defines: []string{"SENDS=1", "GUARDED=0", "REAP=ANSWERED"},
			breaks:  "orphan",
		},
		"orphan/two deletes after the landing": {
			model:   "orphan.pml",
			defines: []string{"SENDS=2", "GUARDED=0", "REAP=TWICE"},
			reaches: "rest",
		},
		// A caller may go away, or be done, long before its claim is late.
		"orphan/guarded, one delete at once": {
			model:   "orphan.pml",
			defines: []string{"SENDS=1", "GUARDED=1", "REAP=ANY"},
			breaks:  "orphan",
		},
		"orphan/guarded, one delete after not_after": {
			model:   "orphan.pml",
			defines: []string{"SENDS=2", "GUARDED=1", "REAP=LATE"},
			reaches: "rest",
		},

		"fence/writes without a fence": {
			model:   "fence.pml",
			defines: []string{"PROPERTY=overwritten", "CHECKS=0", "FENCED=0", "FORGETS=0"},
			breaks:  "overwritten",
		},
		"fence/looks at the lease, then writes": {
			model:   "fence.pml",
			defines: []string{"PROPERTY=overwritten", "CHECKS=1", "FENCED=0", "FORGETS=0"},
			breaks:  "overwritten",
		},
		"fence/fences start again": {
			model:   "fence.pml",
			defines: []string{"PROPERTY=overwritten", "CHECKS=0", "FENCED=1", "FORGETS=1"},
			breaks:  "overwritten",
		},
		"fence/refused by the resource": {
			model:   "fence.pml",
			defines: []string{"PROPERTY=overwritten", "CHECKS=0", "FENCED=1", "FORGETS=0"},
			reaches: "refusal",
		},
		"fence/orders and does not exclude": {
			model:   "fence.pml",
			defines: []string{"PROPERTY=overlapped", "CHECKS=1", "FENCED=1", "FORGETS=0"},
			breaks:  "overlapped",
		},

		"sight/deletes what is not known to live": {
			model:   "sight.pml",
			defines: []string{"DELETES=UNKNOWN", "GATE=0"},
			breaks:  "evicted",
		},
		"sight/deletes what is not known to live, one client at a time": {
			model:   "sight.pml",
			defines: []string{"DELETES=UNKNOWN", "GATE=1"},
			reaches: "removal",
		},
		"sight/deletes what is known to be dead": {
			model:   "sight.pml",
			defines: []string{"DELETES=DEAD", "GATE=0"},
			reaches: "removal",
		},
		"sight/deletes what is known to be dead, one client at a time": {
			model:   "sight.pml",
			defines: []string{"DELETES=DEAD", "GATE=1"},
			reaches: "removal",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tools.search(t, tt.model, tt.defines)
			if tt.breaks != "" {
				require.NotZero(t, s.errors, s.output)
				require.Equal(t, tt.breaks, s.violated, s.output)
				require.NotEmpty(t, s.steps)
				t.Logf("%d states until it broke: %s", s.states, s.steps)
				return
			}
			require.Zero(t, s.errors, "%s\n%s", s.steps, s.output)
			require.NotContains(t, s.output, "Search not completed")
			require.NotContains(t, s.output, "max search depth too small")
			require.Greater(t, s.states, fewStates)
			require.True(t, s.ended(tt.reaches), "no execution came to the end of %s\n%s", tt.reaches, s.output)
			t.Logf("%d states, all of them", s.states)
		})
	}
}
