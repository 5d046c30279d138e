//go:build unix

package campaign_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/lock"
)

const (
	lease  = 1500 * time.Millisecond
	budget = 500 * time.Millisecond
)

// host is a database server.
type host interface {
	Addr() string
	Kill()
	Restart(tb testing.TB)
	Pause()
	Resume()
	Exec(tb testing.TB, db, statements string)
}

// dialect is the kind of a server, with a shop's statements.
type dialect interface {
	start(t *testing.T) (h host, db string)        // the database has the tables of the store
	admin(t *testing.T, h host, db string) *sql.DB // without faults
	upstream(h host) string                        // of the processes
	proxy(tb testing.TB, upstream string, decide sqlproxy.Decide) *sqlproxy.Proxy
	open(t *testing.T, to connect) client
	phase(x *sqlproxy.Exchange) string // "": no fault strikes it
	tables() string
	insert() string
	rare() []string
	tx(ctx context.Context) (handle, bool)
	before(ctx context.Context, tx handle) error                             // the first statement of blind work
	trouble(ctx context.Context, w *serverShop, p *serverProcess, tx handle) // of work
	endSession(ctx context.Context, db *sql.DB) bool
	shock(ctx context.Context, w *serverShop) (name string) // the server suffers; "": it does not
	twin(name string, c client) transactor

	// Of a primary with a replica:
	pair(t *testing.T, p *pair)
	promote(t *testing.T, p *pair, heir host)
	follow(t *testing.T, p *pair, primary, replica host)
	recovers(t *testing.T, p *pair, primary host)
}

// connect says how a process connects.
type connect struct {
	db     string
	addrs  []string // of proxies; each connection draws one
	listed bool     // the driver has the addresses, in this order
	paired bool
	twin   bool
}

// client is the connections of a process.
type client struct {
	store transactor
	begin func(ctx context.Context) (handle, error) // of a twin
	reads *sql.DB                                   // of a twin
	close func()
}

// serverShop is a server, and the campaign there.
type serverShop struct {
	*once.Campaign
	dialect

	t    *testing.T
	host host
	name string // of the database
	db   *sql.DB
	twin string // "": none

	slowOdds      int // of so many orders, one takes longer than its lease
	leaveOdds     int // of so many callers, one leaves soon; 0: none does
	lease, budget time.Duration
}

func start(t *testing.T, d dialect, twin string) *serverShop {
	t.Helper()
	h, name := d.start(t)
	w := shopOf(t, d, h, name, twin)
	if twin != "" {
		w.slowOdds = 3 // a twin that trusts its lease fails only there
	}
	return w
}

func shopOf(t *testing.T, d dialect, h host, name, twin string) *serverShop {
	t.Helper()
	w := &serverShop{Campaign: once.New(t), dialect: d, t: t, host: h, name: name, twin: twin, slowOdds: 10, lease: lease, budget: budget}
	h.Exec(t, name, d.tables())
	w.db = d.admin(t, h, name)
	t.Cleanup(func() { _ = w.db.Close() }) // its server may be gone
	return w
}

func (w *serverShop) campaign() *once.Campaign { return w.Campaign }

func (w *serverShop) plan() once.Plan { return once.Plan{Processes: 8, Callers: 1} }

func (w *serverShop) rests(*testing.T) {}

func (w *serverShop) Orders(ctx context.Context) (all []once.Row, ok bool) {
	return ordersOf(ctx, w.db)
}

// ordersOf returns the rows that were committed. ok is false while the server does not answer.
func ordersOf(ctx context.Context, db *sql.DB) (all []once.Row, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	rows, err := db.QueryContext(ctx, "SELECT name, answer FROM orders")
	if err != nil {
		return nil, false // it is restarting
	}
	defer rows.Close()
	for rows.Next() {
		var o once.Row
		if err := rows.Scan(&o.Name, &o.Answer); err != nil {
			return nil, false
		}
		all = append(all, o)
	}
	return all, rows.Err() == nil
}

// Strike is part of [once.Shop]. It kills sessions and the server.
func (w *serverShop) Strike(ctx context.Context, r *rand.Rand) {
	for w.Pause(ctx, time.Duration(500+r.IntN(3000))*time.Millisecond) {
		switch r.IntN(10) {
		case 0:
			w.Faults.Add("server: killed, recovered")
			w.host.Kill()
			w.host.Restart(w.t)
		case 1:
			if name := w.shock(ctx, w); name != "" {
				w.Faults.Add(name)
			}
		default:
			if w.endSession(ctx, w.db) {
				w.Faults.Add("session: ended")
			}
		}
	}
}

func (w *serverShop) Open(r *rand.Rand) once.Process {
	return w.process(&w.Faults, r, connect{db: w.name}, w.upstream(w.host))
}

// serverProcess is one process of the shop. It has its own network, which is cut when it ends, so
// that no later packet of it reaches a server.
type serverProcess struct {
	client

	w       *serverShop
	faults  *faults
	proxies []*sqlproxy.Proxy
	locker  *lock.Locker
}

// process starts a process with a proxy to each of upstreams.
func (w *serverShop) process(counts *once.Counts, r *rand.Rand, to connect, upstreams ...string) *serverProcess {
	p := &serverProcess{w: w, faults: &faults{counts: counts, w: w, r: rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))}}
	for _, upstream := range upstreams {
		p.proxies = append(p.proxies, w.proxy(w.t, upstream, p.faults.decide))
		to.addrs = append(to.addrs, p.proxies[len(p.proxies)-1].Addr())
	}
	to.twin = w.twin != ""
	p.client = w.open(w.t, to)
	store := p.store
	if to.twin {
		store = w.dialect.twin(w.twin, p.client)
	}
	p.locker = lock.New(&watchedStore{store, p}, lock.WithTransaction(), lock.WithLease(w.lease), lock.WithBudget(w.budget), lock.WithKeep(time.Hour))
	return p
}

func (p *serverProcess) Kill() {
	for _, proxy := range p.proxies {
		proxy.Close()
	}
}

func (p *serverProcess) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*p.w.lease)
	defer cancel()
	_ = p.locker.Close(ctx)
	p.Kill()
	p.close()
}

// txOf returns the transaction of the work.
func (w *serverShop) txOf(ctx context.Context) (handle, bool) {
	if tx, is := ctx.Value(naiveKey{}).(handle); is {
		return tx, true
	}
	return w.tx(ctx)
}

func (p *serverProcess) Order(ctx context.Context, o *once.Order) (reply once.Reply) {
	slow, troubled := !p.w.Over() && o.Dice.IntN(p.w.slowOdds) == 0, !p.w.Over() && o.Dice.IntN(15) == 0
	fails, blind := o.Dice.IntN(30) == 0, o.Dice.IntN(2) == 0
	if p.w.leaveOdds > 0 && !p.w.Over() && o.Dice.IntN(p.w.leaveOdds) == 0 {
		var leave context.CancelFunc
		ctx, leave = context.WithTimeout(ctx, time.Duration(o.Dice.IntN(500))*time.Millisecond)
		defer leave()
	}
	reply.Receipt, reply.Replayed, reply.Err = p.locker.Once(ctx, o.Name, nil, func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, p.w.lease+p.w.budget)
		defer cancel()
		reply.Ran = true
		tx, ok := p.w.txOf(ctx)
		if !ok {
			return nil, errors.New("no transaction")
		}
		if blind {
			if err := p.w.before(ctx, tx); err != nil {
				return nil, err
			}
		}
		if _, err := tx.exec(ctx, p.w.insert(), o.Name, o.Answer); err != nil {
			return nil, err
		}
		if slow {
			p.w.Faults.Add("work: longer than a lease")
			p.faults.dropRenewals(true)
			time.Sleep(p.w.lease + p.w.lease/4)
			p.faults.dropRenewals(false)
			if blind {
				return o.Answer, nil // even if the lease was lost meanwhile
			}
		}
		if troubled {
			p.w.trouble(ctx, p.w, p, tx)
		}
		if fails {
			return nil, errors.New("the work failed")
		}
		return o.Answer, nil
	})
	return reply
}

// watchedStore counts the paths of transactions.
type watchedStore struct {
	transactor

	p *serverProcess
}

func (s *watchedStore) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	work, tx, err := s.transactor.Begin(ctx, key, token)
	if err != nil {
		return nil, nil, err
	}
	return work, once.Watched{Transaction: tx, Takes: s.p.w.Paths.Add, Late: s.p.faults.lateCommit}, nil
}

// faults decides at random the fate of the exchanges of one process.
type faults struct {
	counts     *once.Counts
	w          *serverShop
	mu         sync.Mutex
	r          *rand.Rand
	commit     sqlproxy.Fault // the fault of the last COMMIT
	noRenewals bool           // all are lost
}

// dropRenewals loses all renewals from now on, or none.
func (f *faults) dropRenewals(drop bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noRenewals = drop
}

// lateCommit reports whether the last COMMIT arrives after its caller has stopped waiting.
func (f *faults) lateCommit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commit.Action == sqlproxy.DelayRequest && f.commit.Delay > f.w.budget
}

func (f *faults) decide(x *sqlproxy.Exchange) sqlproxy.Fault {
	phase := f.w.phase(x)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noRenewals && phase == "renewal" {
		f.counts.Add("renewal: lose request")
		return sqlproxy.Fault{Action: sqlproxy.LoseRequest}
	}
	odds := map[string]int{"commit": 8, "renewal": 2}[phase] // these phases are rare
	if odds == 0 {
		odds = 25
	}
	if phase == "commit" {
		f.commit = sqlproxy.Fault{}
	}
	if phase == "" || f.r.IntN(odds) != 0 || f.w.Over() {
		return sqlproxy.Fault{}
	}
	fault := []sqlproxy.Fault{
		{Action: sqlproxy.LoseRequest},
		{Action: sqlproxy.LoseReply},
		{Action: sqlproxy.LoseReplyAndCut},
		{Action: sqlproxy.CutRequest},
		{Action: sqlproxy.CutReply, Bytes: 1 + f.r.IntN(8)},
		{Action: sqlproxy.Freeze},
		{Action: sqlproxy.DelayReply, Delay: time.Duration(f.r.IntN(900)) * time.Millisecond},
		{Action: sqlproxy.DelayRequest, Delay: time.Duration(f.r.IntN(2500)) * time.Millisecond},
	}[f.r.IntN(8)]
	if phase == "renewal" && f.r.IntN(2) == 0 { // so that leases are lost
		fault = sqlproxy.Fault{Action: sqlproxy.DelayRequest, Delay: 2 * f.w.lease}
	}
	if phase == "commit" {
		f.commit = fault
	}
	f.counts.Add(phase + ": " + fault.Action.String())
	return fault
}

// phases are recognised by a part of a statement.
type phases []struct{ name, text string }

func (ps phases) of(x *sqlproxy.Exchange) string {
	for _, p := range ps {
		if x.Contains(p.text) {
			return p.name
		}
	}
	return ""
}
