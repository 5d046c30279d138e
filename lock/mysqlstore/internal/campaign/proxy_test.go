package campaign_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/mysqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/once"
)

// faults decides at random the fate of the commands of one process.
type faults struct {
	counts     *once.Counts
	over       func() bool
	mu         sync.Mutex
	r          *rand.Rand
	late       bool // the last COMMIT arrives after its caller has stopped waiting
	noRenewals bool // all are lost
}

// phases are recognised by a part of a statement.
var phases = []struct{ name, text string }{
	{"commit", "COMMIT AND NO CHAIN"},
	{"fence", "NOWAIT"},
	{"end of a session", "KILL"},
	{"renewal", "GREATEST(over_at"},
	{"renewal", "over_at = GREATEST(ends_at"},
	{"settle", "SET settled = 1"},
	{"release", "DELETE FROM"},
	{"claim", "(lock_key, token"},
	{"claim", "SET token ="},
	{"read", "WHERE lock_key IN"},
	{"begin", "SAVEPOINT latch"},
	{"work", "INSERT INTO orders"},
}

func phaseOf(statement string) string {
	for _, p := range phases {
		if strings.Contains(statement, p.text) {
			return p.name
		}
	}
	return ""
}

func (f *faults) dropRenewals(drop bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noRenewals = drop
}

func (f *faults) lateCommit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.late
}

func (f *faults) decide(statement string) (fault mysqlproxy.Fault) {
	phase := phaseOf(statement)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noRenewals && phase == "renewal" {
		f.counts.Add("renewal: lose request")
		return mysqlproxy.Fault{Action: mysqlproxy.LoseRequest}
	}
	if phase == "commit" {
		f.late = false
	}
	odds := map[string]int{"commit": 8, "renewal": 2}[phase] // these phases are rare
	if odds == 0 {
		odds = 25
	}
	if phase == "" || f.r.IntN(odds) != 0 || f.over() {
		return fault
	}
	fault.Action = mysqlproxy.Action(1 + f.r.IntN(int(mysqlproxy.DelayRequest)))
	fault.Delay = time.Duration(f.r.IntN(900)) * time.Millisecond
	if fault.Action == mysqlproxy.DelayRequest {
		fault.Delay = time.Duration(f.r.IntN(2500)) * time.Millisecond
	}
	if phase == "renewal" && f.r.IntN(2) == 0 { // so that leases are lost
		fault = mysqlproxy.Fault{Action: mysqlproxy.DelayRequest, Delay: 2 * lease}
	}
	if phase == "commit" {
		f.late = fault.Action == mysqlproxy.DelayRequest && fault.Delay > budget
	}
	f.counts.Add(phase + ": " + fault.Action.String())
	return fault
}
