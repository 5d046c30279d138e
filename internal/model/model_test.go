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
		property, switches string
		reaches            string // the process that must have come to its end in some execution; "": the property must not hold
	}{
		"orphan/a time-out is read as not taken, or its clean-up is dropped": {"orphan", "REAP=NOT SENDS=1 LEASE=1", ""},
		"orphan/clean-up is dropped, and the entry ends with its lease":      {"outlived", "REAP=NOT SENDS=2 STALLS=1 LEASE=2", "rest"},
		"orphan/a claim that comes again begins its lease anew":              {"outlived", "REAP=NOT SENDS=2 STALLS=1 LEASE=2 LONGER=1", ""},
		"orphan/one delete": {"orphan", "REAP=ONCE SENDS=1 LEASE=1", ""},
		// Two sends make two entries, one after the other.
		"orphan/a delete that found the entry": {"orphan", "REAP=FOUND SENDS=2 LEASE=1", ""},
		// What it found is that of a send whose grant was read too late, and the one that
		// was not answered is still to come.
		"orphan/a delete that found the entry, one send without an answer": {"orphan", "REAP=UNANSWERED SENDS=2 LEASE=1", ""},
		// The answer came from after the delete.
		"orphan/a delete before the last answer": {"orphan", "REAP=AFTERWARDS SENDS=1 LEASE=1", ""},
		"orphan/a delete without an answer":      {"orphan", "REAP=UNHEARD SENDS=1 LEASE=1", ""},
		"orphan/deletes by the rules":            {"ANY", "REAP=RULES SENDS=2 LEASE=1 SETTLES=1", "rest"},
		// A server that was stalled may take the last delete before the claim. What is left
		// then ends with its lease.
		"orphan/deletes by the rules, a stalled server":            {"orphan", "REAP=RULES SENDS=1 LEASE=1 STALLS=1", ""},
		"orphan/deletes by the rules, a stalled server, one lease": {"outlived", "REAP=RULES SENDS=1 LEASE=2 STALLS=1", "rest"},
		"orphan/guarded, a stalled server":                         {"orphan", "REAP=RULES SENDS=1 LEASE=1 STALLS=1 GUARDED=1", "rest"},
		// A caller may go away, or be done, long before its claim is late.
		"orphan/guarded, one delete":             {"orphan", "REAP=ONCE SENDS=1 LEASE=1 STALLS=1 GUARDED=1", ""},
		"orphan/deletes compare the token alone": {"changed", "REAP=RULES SENDS=2 LEASE=1 SETTLES=2", ""},

		"fence/writes without a fence":          {"overwritten", "CHECKS=0 FENCED=0 FORGETS=0", ""},
		"fence/looks at the lease, then writes": {"overwritten", "CHECKS=1 FENCED=0 FORGETS=0", ""},
		"fence/fences start again":              {"overwritten", "CHECKS=0 FENCED=1 FORGETS=1", ""},
		"fence/refused by the resource":         {"overwritten", "CHECKS=0 FENCED=1 FORGETS=0", "refusal"},
		"fence/orders and does not exclude":     {"overlapped", "CHECKS=1 FENCED=1 FORGETS=0", ""},

		"sight/deletes what is not known to live":                       {"evicted", "DELETES=UNKNOWN KNOWS=FOREVER GATE=0", ""},
		"sight/deletes what is not known to live, one client at a time": {"evicted", "DELETES=UNKNOWN KNOWS=FOREVER GATE=1", "removal"},
		"sight/deletes what is known to be dead":                        {"ANY", "DELETES=DEAD KNOWS=FOREVER GATE=0", "removal"},
		"sight/deletes what is known to be dead, one client at a time":  {"ANY", "DELETES=DEAD KNOWS=FOREVER GATE=1", "removal"},
		"sight/knows too late what is dead":                             {"locked", "DELETES=DEAD KNOWS=LATER GATE=1", ""},
		"sight/forgets what is dead with its clean-up":                  {"locked", "DELETES=DEAD KNOWS=SWEPT GATE=1", ""},

		"takeover/a lost one is waited for": {"grown", "LOST=WAITS", ""},
		"takeover/a lost one is deleted":    {"forgotten", "LOST=DELETES", ""},
		"takeover/a lost one is trusted":    {"overlapped", "LOST=TRUSTS", ""},
		"takeover/a lost one is replaced":   {"ANY", "LOST=REPLACES", "adoption"},

		"set/one command that takes all or none":          {"ANY", "HOW=ONCE", "grant"},
		"set/one command that takes all or none, waiting": {"ANY", "HOW=ONCE WAITS=1", "grant"},
		"set/in one order":                                {"ANY", "HOW=SORTED", "grant"},
		"set/in one order, waiting":                       {"ANY", "HOW=SORTED WAITS=1", "grant"},
		"set/one command that takes a part":               {"torn", "HOW=PART", ""},
		"set/in the caller's order":                       {"neither", "HOW=OWN", ""},
		"set/in the caller's order, waiting":              {"stuck", "HOW=OWN WAITS=1", ""},
		"set/released in part":                            {"torn", "HOW=ONCE RELEASES=EARLY", ""},
		"set/the first key is cleaned up":                 {"orphan", "HOW=ONCE CLEANS=FIRST", ""},
		"set/nothing is cleaned up":                       {"orphan", "HOW=SORTED CLEANS=NONE", ""},
		// A send without an answer lands after the release.
		"set/a token is forgotten with the release": {"orphan", "HOW=ONCE KNOWS=0", ""},

		"ticket/replaces its token":                             {"ANY", "SENDS=2", "turns"},
		"ticket/sent once while the holder's claim is in doubt": {"ANY", "SENDS=1 DOUBT=1", "turns"},
		// The late claim of the holder makes its entry again, and the late claim of the ticket
		// takes that.
		"ticket/sent twice while the holder's claim is in doubt": {"twice", "SENDS=2 DOUBT=1", ""},
		"ticket/takes a free key, too":                           {"twice", "SENDS=1 TAKES=FREEKEY", ""},
		"ticket/takes the key of any holder":                     {"both", "SENDS=1 TAKES=HOLDER", ""},
		"ticket/nothing is cleaned up":                           {"stranded", "SENDS=1 CLEANS=0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model, _, _ := strings.Cut(name, "/")
			s := tools.search(t, model+".pml", variant(model, "PROPERTY="+tt.property+" "+tt.switches))
			if tt.reaches == "" {
				require.NotZero(t, s.errors, s.output)
				require.Equal(t, tt.property, s.violated, s.output)
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

// defaults has the settings of the library for switches that a variant does not name.
var defaults = map[string]string{
	"orphan": "STALLS=0 GUARDED=0 LONGER=0 SETTLES=0",
	"set":    "WAITS=0 RELEASES=ALL CLEANS=BOTH KNOWS=1",
	"ticket": "TAKES=TOKEN DOUBT=0 CLEANS=1",
}

// variant returns the switches of a model with the defaults of those that are not given.
func variant(model, switches string) []string {
	given := strings.Fields(switches)
	for value := range strings.FieldsSeq(defaults[model]) {
		name, _, _ := strings.Cut(value, "=")
		if !slices.ContainsFunc(given, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
			given = append(given, value)
		}
	}
	return given
}
