package campaign_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/pgproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// rarePaths are to be taken by every campaign.
var rarePaths = []string{
	"commit unanswered and applied",
	"commit unanswered and not applied",
	"late commit found no claim",
	"settle after a takeover",
	"serialization failure",
}

// phases are recognised by a part of a statement.
var phases = []struct{ name, text string }{
	{"fence", "lock_timeout"},
	{"end of a session", "pg_terminate_backend"},
	{"renewal", "greatest(ends_at"},
	{"release", "DELETE FROM"},
	{"claim", "ON CONFLICT"},
	{"work", "INSERT INTO orders"},
}

func phaseOf(x *pgproxy.Exchange) string {
	switch {
	case x.Begins("COMMIT"):
		return "commit"
	case x.Begins("BEGIN"):
		return "begin"
	case x.Begins("ROLLBACK"):
		return "rollback"
	}
	for _, p := range phases {
		if x.Contains(p.text) {
			return p.name
		}
	}
	return ""
}

// faults decides at random the fate of the exchanges of one process.
type faults struct {
	counts     *once.Counts
	over       func() bool
	mu         sync.Mutex
	r          *rand.Rand
	commit     pgproxy.Fault // the fault of the last COMMIT
	noRenewals bool          // all are lost
}

// dropRenewals loses all renewals from now on, or none.
func (f *faults) dropRenewals(drop bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noRenewals = drop
}

func (f *faults) late() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commit.Action == pgproxy.DelayRequest && f.commit.Delay > budget
}

func newFaults(count *once.Counts, over func() bool, r *rand.Rand) *faults {
	return &faults{counts: count, over: over, r: rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))}
}

func (f *faults) decide(x *pgproxy.Exchange) pgproxy.Fault {
	phase := phaseOf(x)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noRenewals && phase == "renewal" {
		f.counts.Add("renewal: lose request")
		return pgproxy.Fault{Action: pgproxy.LoseRequest}
	}
	odds := map[string]int{"commit": 8, "renewal": 2}[phase] // these phases are rare
	if odds == 0 {
		odds = 25
	}
	if phase == "commit" {
		f.commit = pgproxy.Fault{}
	}
	if phase == "" || f.r.IntN(odds) != 0 || f.over() {
		return pgproxy.Fault{}
	}
	fault := []pgproxy.Fault{
		{Action: pgproxy.LoseRequest},
		{Action: pgproxy.LoseReply},
		{Action: pgproxy.LoseReplyAndCut},
		{Action: pgproxy.CutRequest},
		{Action: pgproxy.CutReply, Bytes: 1 + f.r.IntN(8)},
		{Action: pgproxy.Freeze},
		{Action: pgproxy.DelayReply, Delay: time.Duration(f.r.IntN(900)) * time.Millisecond},
		{Action: pgproxy.DelayRequest, Delay: time.Duration(f.r.IntN(2500)) * time.Millisecond},
	}[f.r.IntN(8)]
	if phase == "renewal" && f.r.IntN(2) == 0 { // so that leases are lost
		fault = pgproxy.Fault{Action: pgproxy.DelayRequest, Delay: 2 * lease}
	}
	if phase == "commit" {
		f.commit = fault
	}
	f.counts.Add(phase + ": " + fault.Action.String())
	return fault
}

// Strike is part of [once.Shop]. It kills sessions, and the server.
func (w *shop) Strike(ctx context.Context, r *rand.Rand) {
	for w.Pause(ctx, time.Duration(500+r.IntN(3000))*time.Millisecond) {
		switch r.IntN(12) {
		case 0:
			w.Faults.Add("server: killed, recovered")
			w.cluster.Kill()
			w.cluster.Restart(w.t)
		case 1:
			if w.killBackend(ctx) {
				w.Faults.Add("backend: killed, server recovered")
			}
		default:
			if w.end(ctx) {
				w.Faults.Add("session: ended")
			}
		}
	}
}

// end ends a session that is in a transaction.
func (w *shop) end(ctx context.Context) bool {
	return w.ask(ctx, "SELECT pg_terminate_backend(pid)::int FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid() AND datname = current_database() LIMIT 1") != 0
}

// killBackend kills one, after which the server ends all sessions and recovers.
func (w *shop) killBackend(ctx context.Context) bool {
	pid := w.ask(ctx, "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database() ORDER BY random() LIMIT 1")
	return pid != 0 && syscall.Kill(pid, syscall.SIGKILL) == nil
}

func (w *shop) ask(ctx context.Context, sql string) (n int) {
	conn, err := pgx.Connect(ctx, w.cluster.URL(w.db, "postgres"))
	if err != nil {
		return 0
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_ = conn.QueryRow(ctx, sql).Scan(&n)
	return n
}

// watched counts the paths of a store.
type watched struct {
	*pgstore.Store

	paths  *once.Counts
	faults *faults
}

func (s *watched) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	work, tx, err := s.Store.Begin(ctx, key, token)
	if err != nil {
		return nil, nil, err
	}
	return work, once.Watched{Transaction: tx, Takes: s.paths.Add, Late: s.faults.late}, nil
}
