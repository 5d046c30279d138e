package model_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A search of fewer states than this has not tried much.
const fewStates = 1000

func TestModel(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "searches the models by another program")
	t.Parallel()
	tools := findTools(t)
	for name, tt := range map[string]struct {
		model   string
		defines []string
		breaks  string // the variable of the property that must not hold
		reaches string // the process that must have come to its end in some execution
	}{
		"orphan/a time-out is read as not taken, or its clean-up is dropped": {
			model:   "orphan.pml",
			defines: orphan("orphan", "NOT", "SENDS=1", "LEASE=1"),
			breaks:  "orphan",
		},
		"orphan/clean-up is dropped, and the entry ends with its lease": {
			model:   "orphan.pml",
			defines: orphan("outlived", "NOT", "SENDS=2", "STALLS=1", "LEASE=2"),
			reaches: "rest",
		},
		"orphan/a claim that comes again begins its lease anew": {
			model:   "orphan.pml",
			defines: orphan("outlived", "NOT", "SENDS=2", "STALLS=1", "LEASE=2", "LONGER=1"),
			breaks:  "outlived",
		},
		"orphan/one delete": {
			model:   "orphan.pml",
			defines: orphan("orphan", "ONCE", "SENDS=1", "LEASE=1"),
			breaks:  "orphan",
		},
		// Two sends make two entries, one after the other.
		"orphan/a delete that found the entry": {
			model:   "orphan.pml",
			defines: orphan("orphan", "FOUND", "SENDS=2", "LEASE=1"),
			breaks:  "orphan",
		},
		// What it found is that of a send whose grant was read too late, and the one that
		// was not answered is still to come.
		"orphan/a delete that found the entry, one send without an answer": {
			model:   "orphan.pml",
			defines: orphan("orphan", "UNANSWERED", "SENDS=2", "LEASE=1"),
			breaks:  "orphan",
		},
		// The answer came from after the delete.
		"orphan/a delete before the last answer": {
			model:   "orphan.pml",
			defines: orphan("orphan", "AFTERWARDS", "SENDS=1", "LEASE=1"),
			breaks:  "orphan",
		},
		"orphan/a delete without an answer": {
			model:   "orphan.pml",
			defines: orphan("orphan", "UNHEARD", "SENDS=1", "LEASE=1"),
			breaks:  "orphan",
		},
		"orphan/deletes by the rules": {
			model:   "orphan.pml",
			defines: orphan("ANY", "RULES", "SENDS=2", "LEASE=1", "SETTLES=1"),
			reaches: "rest",
		},
		// A server that was stalled may take the last delete before the claim. What is left
		// then ends with its lease.
		"orphan/deletes by the rules, a stalled server": {
			model:   "orphan.pml",
			defines: orphan("orphan", "RULES", "SENDS=1", "LEASE=1", "STALLS=1"),
			breaks:  "orphan",
		},
		"orphan/deletes by the rules, a stalled server, one lease": {
			model:   "orphan.pml",
			defines: orphan("outlived", "RULES", "SENDS=1", "LEASE=2", "STALLS=1"),
			reaches: "rest",
		},
		"orphan/guarded, a stalled server": {
			model:   "orphan.pml",
			defines: orphan("orphan", "RULES", "SENDS=1", "LEASE=1", "STALLS=1", "GUARDED=1"),
			reaches: "rest",
		},
		// A caller may go away, or be done, long before its claim is late.
		"orphan/guarded, one delete": {
			model:   "orphan.pml",
			defines: orphan("orphan", "ONCE", "SENDS=1", "LEASE=1", "STALLS=1", "GUARDED=1"),
			breaks:  "orphan",
		},
		"orphan/deletes compare the token alone": {
			model:   "orphan.pml",
			defines: orphan("changed", "RULES", "SENDS=2", "LEASE=1", "SETTLES=2"),
			breaks:  "changed",
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
			defines: []string{"PROPERTY=evicted", "DELETES=UNKNOWN", "KNOWS=FOREVER", "GATE=0"},
			breaks:  "evicted",
		},
		"sight/deletes what is not known to live, one client at a time": {
			model:   "sight.pml",
			defines: []string{"PROPERTY=evicted", "DELETES=UNKNOWN", "KNOWS=FOREVER", "GATE=1"},
			reaches: "removal",
		},
		"sight/deletes what is known to be dead": {
			model:   "sight.pml",
			defines: []string{"PROPERTY=ANY", "DELETES=DEAD", "KNOWS=FOREVER", "GATE=0"},
			reaches: "removal",
		},
		"sight/deletes what is known to be dead, one client at a time": {
			model:   "sight.pml",
			defines: []string{"PROPERTY=ANY", "DELETES=DEAD", "KNOWS=FOREVER", "GATE=1"},
			reaches: "removal",
		},
		"sight/knows too late what is dead": {
			model:   "sight.pml",
			defines: []string{"PROPERTY=locked", "DELETES=DEAD", "KNOWS=LATER", "GATE=1"},
			breaks:  "locked",
		},
		"sight/forgets what is dead with its clean-up": {
			model:   "sight.pml",
			defines: []string{"PROPERTY=locked", "DELETES=DEAD", "KNOWS=SWEPT", "GATE=1"},
			breaks:  "locked",
		},

		"takeover/a lost one is waited for": {
			model:   "takeover.pml",
			defines: []string{"PROPERTY=grown", "LOST=WAITS"},
			breaks:  "grown",
		},
		"takeover/a lost one is deleted": {
			model:   "takeover.pml",
			defines: []string{"PROPERTY=forgotten", "LOST=DELETES"},
			breaks:  "forgotten",
		},
		"takeover/a lost one is trusted": {
			model:   "takeover.pml",
			defines: []string{"PROPERTY=overlapped", "LOST=TRUSTS"},
			breaks:  "overlapped",
		},
		"takeover/a lost one is renewed": {
			model:   "takeover.pml",
			defines: []string{"PROPERTY=ANY", "LOST=RENEWS"},
			reaches: "adoption",
		},

		"set/one command that takes all or none": {
			model:   "set.pml",
			defines: set("ANY", "HOW=ONCE"),
			reaches: "grant",
		},
		"set/one command that takes all or none, waiting": {
			model:   "set.pml",
			defines: set("ANY", "HOW=ONCE", "WAITS=1"),
			reaches: "grant",
		},
		"set/in one order": {
			model:   "set.pml",
			defines: set("ANY", "HOW=SORTED"),
			reaches: "grant",
		},
		"set/in one order, waiting": {
			model:   "set.pml",
			defines: set("ANY", "HOW=SORTED", "WAITS=1"),
			reaches: "grant",
		},
		"set/one command that takes a part": {
			model:   "set.pml",
			defines: set("torn", "HOW=PART"),
			breaks:  "torn",
		},
		"set/in the caller's order": {
			model:   "set.pml",
			defines: set("neither", "HOW=OWN"),
			breaks:  "neither",
		},
		"set/in the caller's order, waiting": {
			model:   "set.pml",
			defines: set("stuck", "HOW=OWN", "WAITS=1"),
			breaks:  "stuck",
		},
		"set/released in part": {
			model:   "set.pml",
			defines: set("torn", "HOW=ONCE", "RELEASES=EARLY"),
			breaks:  "torn",
		},
		"set/the first key is cleaned up": {
			model:   "set.pml",
			defines: set("orphan", "HOW=ONCE", "CLEANS=FIRST"),
			breaks:  "orphan",
		},
		"set/nothing is cleaned up": {
			model:   "set.pml",
			defines: set("orphan", "HOW=SORTED", "CLEANS=NONE"),
			breaks:  "orphan",
		},
		// A send without an answer lands after the release.
		"set/a token is forgotten with the release": {
			model:   "set.pml",
			defines: set("orphan", "HOW=ONCE", "KNOWS=0"),
			breaks:  "orphan",
		},

		"ticket/replaces its token": {
			model:   "ticket.pml",
			defines: ticket("ANY", "SENDS=2"),
			reaches: "turns",
		},
		"ticket/sent once while the holder's claim is in doubt": {
			model:   "ticket.pml",
			defines: ticket("ANY", "SENDS=1", "DOUBT=1"),
			reaches: "turns",
		},
		// The late claim of the holder makes its entry again, and the late claim of the ticket
		// takes that.
		"ticket/sent twice while the holder's claim is in doubt": {
			model:   "ticket.pml",
			defines: ticket("twice", "SENDS=2", "DOUBT=1"),
			breaks:  "twice",
		},
		"ticket/takes a free key, too": {
			model:   "ticket.pml",
			defines: ticket("twice", "SENDS=1", "TAKES=FREEKEY"),
			breaks:  "twice",
		},
		"ticket/takes the key of any holder": {
			model:   "ticket.pml",
			defines: ticket("both", "SENDS=1", "TAKES=HOLDER"),
			breaks:  "both",
		},
		"ticket/nothing is cleaned up": {
			model:   "ticket.pml",
			defines: ticket("stranded", "SENDS=1", "CLEANS=0"),
			breaks:  "stranded",
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

// orphan is a variant of orphan.pml. Switches that are not given are 0.
func orphan(property, reap string, switches ...string) []string {
	return variant(append(switches, "PROPERTY="+property, "REAP="+reap), "STALLS=0", "GUARDED=0", "LONGER=0", "SETTLES=0")
}

// set is a variant of set.pml. Other switches have the library's values.
func set(property string, switches ...string) []string {
	return variant(append(switches, "PROPERTY="+property), "WAITS=0", "RELEASES=ALL", "CLEANS=BOTH", "KNOWS=1")
}

// ticket is a variant of ticket.pml. Other switches have the library's values.
func ticket(property string, switches ...string) []string {
	return variant(append(switches, "PROPERTY="+property), "TAKES=TOKEN", "DOUBT=0", "CLEANS=1")
}

// variant returns switches with the defaults of those that are not given.
func variant(switches []string, defaults ...string) []string {
	for _, value := range defaults {
		name, _, _ := strings.Cut(value, "=")
		if !slices.ContainsFunc(switches, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
			switches = append(switches, value)
		}
	}
	return switches
}
