//go:build unix

package campaign_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/mysqlstore"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/redisstore"
	"github.com/httplatch/httplatch/lock/sqlitestore"
	latch "github.com/httplatch/httplatch/middleware"
)

const (
	chainLease  = 600 * time.Millisecond
	chainBudget = 200 * time.Millisecond
)

// chainSteps are the steps of an order. The call of each has the results of those before in its body.
var chainSteps = [...]string{"reserve", "charge", "courier", "mail", "ledger"}

// chainStores are the stores of chains. Each is used with takeovers, and those of databases also with transactions.
var chainStores = []struct {
	name         string
	open         func(t *testing.T) lock.Store
	transactions bool
}{
	{"memory", func(*testing.T) lock.Store { return memstore.New() }, false},
	{"redis", func(t *testing.T) lock.Store {
		t.Helper()
		s := must.Get(redisstore.Open(t.Context(), "redis://"+redistest.Start(t).Addr()))(t)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}, false},
	{"postgres", func(t *testing.T) lock.Store {
		t.Helper()
		s := must.Get(pgstore.Open(t.Context(), pgtest.DatabaseURL(t)))(t)
		t.Cleanup(s.Close)
		return s
	}, true},
	{"mariadb", func(t *testing.T) lock.Store {
		t.Helper()
		s := must.Get(mysqlstore.Open(t.Context(), mysqltest.Start(t).DatabaseDSN(t)))(t)
		t.Cleanup(s.Close)
		return s
	}, true},
	{"sqlite", func(t *testing.T) lock.Store {
		t.Helper()
		s := must.Get(sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "shop.db")))(t)
		t.Cleanup(s.Close)
		return s
	}, true},
}

// stepFunc makes a step, as lock.Step does.
type stepFunc func(ctx context.Context, c *chain, order, name string, fn func(ctx context.Context) ([]byte, error)) ([]byte, error)

func makesStep(ctx context.Context, _ *chain, _, name string, fn func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	return lock.Step(ctx, name, fn)
}

// chain is a campaign over one store: orders of five steps, in processes that are killed and paused.
type chain struct {
	once.Book

	faults, paths once.Counts
	most          int // faults

	store lock.Store
	opts  []lock.Option
	step  stepFunc
	keyOf func(ctx context.Context, name string) (string, error) // of the call of a step

	background sync.WaitGroup // late calls, and Lockers that are closed

	mu    sync.Mutex
	calls map[string]*stepCalls // by order and step
}

// stepCalls are the calls of one step at the other service.
type stepCalls struct {
	key, body string
	n         int
}

func newChain(store lock.Store, faults int, opts ...lock.Option) *chain {
	return &chain{
		most: faults, store: store, step: makesStep, keyOf: latch.DeriveKey, calls: map[string]*stepCalls{},
		opts: append(opts, lock.WithLease(chainLease), lock.WithBudget(chainBudget), lock.WithMaxHold(10*time.Second), lock.WithWait(chainBudget), lock.WithLogger(quietLog)),
	}
}

// hits reports whether a fault happens, and counts it.
func (c *chain) hits(dice *dice, oneOf int, name string) bool {
	if dice.n(oneOf) != 0 || c.faults.Total() >= c.most {
		return false
	}
	c.faults.Add(name)
	return true
}

// answers is the other service. It has an effect for each key, and a different result for each call: a caller gets
// equal results only if one of them was kept.
func (c *chain) answers(order, name, key, body string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := order + "/" + name
	seen := c.calls[at]
	if seen == nil {
		seen = &stepCalls{key: key, body: body}
		c.calls[at] = seen
	}
	if seen.n++; seen.n > 1 {
		c.paths.Add("a call is repeated")
	}
	if key != seen.key {
		c.Complain("%s was called with two keys", at)
	}
	if body != seen.body {
		c.Complain("%s was called with %q and %q", at, seen.body, body)
	}
	return fmt.Appendf(nil, "%s by call %d", name, seen.n)
}

// dice may be thrown by several goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

func (d *dice) upTo(most time.Duration) time.Duration { return time.Duration(d.n(int(most))) }

// chainProcess is a process of the shop.
type chainProcess struct {
	lock.Store // behind its network: see meet

	c       *chain
	dice    *dice
	locker  *lock.Locker
	handler http.Handler
	dead    atomic.Bool
	frozen  atomic.Int64 // until when, in Unix nanoseconds
}

var (
	errDied  = errors.New("the process has died")
	quietLog = slog.New(slog.DiscardHandler)
	secret   = latch.WithKeySecret(bytes.Repeat([]byte("s"), 16))
)

func (c *chain) process(dice *dice) *chainProcess {
	p := &chainProcess{Store: c.store, c: c, dice: dice}
	p.locker = lock.New(p, c.opts...)
	p.handler = latch.Idempotent(p.locker, keyfunc.Global, keyfunc.IdempotencyKey, secret)(http.HandlerFunc(p.order))
	return p
}

// end closes a process that was killed, or is over.
func (p *chainProcess) end(ctx context.Context) {
	p.c.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // a twin's faults go on, and may kill it here
		defer cancel()
		if p.dead.Load() {
			cancel() // no call arrives
		}
		_ = p.locker.Close(ctx)
	})
}

// passes ends the work of a process that has died, or dies here.
func (p *chainProcess) passes(where string) {
	if p.c.hits(p.dice, 60, "killed "+where) {
		p.dead.Store(true)
	}
	if p.dead.Load() {
		panic(errDied)
	}
}

// order is the handler.
func (p *chainProcess) order(w http.ResponseWriter, r *http.Request) {
	c, order, sofar := p.c, r.Header.Get("Idempotency-Key"), ""
	if lock.Attempt(r.Context()) > 1 {
		c.paths.Add("an attempt takes over")
	}
	for _, name := range chainSteps {
		p.passes("before a step")
		ran := false
		result, err := c.step(r.Context(), c, order, name, func(ctx context.Context) ([]byte, error) {
			ran = true
			p.passes("in a step, before its call")
			if c.hits(p.dice, 40, "paused before the call of a step") {
				p.freeze()
			}
			key, err := c.keyOf(ctx, name)
			if err != nil || c.hits(p.dice, 20, "request to the service lost") {
				return nil, errors.Join(err, io.EOF)
			}
			result := c.answers(order, name, key, sofar)
			p.passes("in a step, after its call")
			if c.hits(p.dice, 40, "paused after the call of a step") {
				p.freeze()
			}
			if c.hits(p.dice, 20, "reply of the service lost") {
				return nil, io.EOF
			}
			return result, nil
		})
		if err != nil {
			if errors.Is(err, lock.ErrLost) {
				c.paths.Add("an attempt that is over is stopped")
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		c.Gets(order+"/"+name, result)
		if !ran {
			c.paths.Add("a step is replayed")
		}
		p.passes("after a step")
		sofar += string(result) + "; "
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, sofar)
}

// freeze stops the work for longer than its lease. No call of the process arrives meanwhile.
func (p *chainProcess) freeze() {
	d := chainLease + p.dice.upTo(chainLease)
	p.frozen.Store(time.Now().Add(d).UnixNano())
	time.Sleep(d)
}

// meet makes a call to the store, with a fault or without.
func meet[T any](ctx context.Context, p *chainProcess, name string, call func(ctx context.Context) (T, error)) (none T, _ error) {
	c := p.c
	if c.hits(p.dice, 150, "killed before a "+name) {
		p.dead.Store(true)
	}
	if until := time.Until(time.Unix(0, p.frozen.Load())); until > 0 {
		thaws := time.NewTimer(until)
		defer thaws.Stop()
		select {
		case <-ctx.Done():
			return none, context.Cause(ctx)
		case <-thaws.C:
		}
	}
	switch {
	case p.dead.Load(), c.hits(p.dice, 30, name+" lost"):
		return none, io.EOF
	case c.hits(p.dice, 40, name+" late"):
		after := p.dice.upTo(2 * chainLease)
		c.background.Go(func() {
			time.Sleep(after)
			_, _ = call(context.WithoutCancel(ctx))
		})
		return none, io.EOF
	}
	answer, err := call(ctx)
	if c.hits(p.dice, 150, "killed after a "+name) {
		p.dead.Store(true)
	}
	if p.dead.Load() || c.hits(p.dice, 30, "reply to a "+name+" lost") {
		return none, io.EOF
	}
	return answer, err
}

func (p *chainProcess) Describe() lock.Description {
	d := lock.Describe(p.Store)
	d.Local, d.MaxLag = false, 3*chainLease
	return d
}

func (p *chainProcess) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return meet(ctx, p, "claim", func(ctx context.Context) (lock.Entry, error) { return p.Store.Claim(ctx, key, c) })
}

func (p *chainProcess) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return meet(ctx, p, "renewal", func(ctx context.Context) (bool, error) { return p.Store.Renew(ctx, key, c) })
}

func (p *chainProcess) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	return meet(ctx, p, "settle", func(ctx context.Context) (bool, error) { return p.Store.Settle(ctx, key, c, receipt, keep) })
}

func (p *chainProcess) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return meet(ctx, p, "release", func(ctx context.Context) (bool, error) { return p.Store.Release(ctx, key, c) })
}

func (p *chainProcess) Get(ctx context.Context, key string) (lock.Entry, error) {
	return meet(ctx, p, "read", func(ctx context.Context) (lock.Entry, error) { return p.Store.Get(ctx, key) })
}

func (p *chainProcess) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	return p.Store.(lock.Transactor).Begin(ctx, key, token)
}

// ask sends one request. ok is false if the process died before it answered.
func (p *chainProcess) ask(ctx context.Context, order string) (w *httptest.ResponseRecorder, ok bool) {
	defer func() {
		if died := recover(); died != nil && died != errDied { //nolint:errorlint // it is the value itself
			panic(died)
		}
	}()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", http.NoBody)
	r.Header.Set("Idempotency-Key", order)
	w = httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	return w, !p.dead.Load()
}

// run makes orders until there were enough faults, or a violation was found, and ends those that were begun.
func (c *chain) run(t *testing.T, found func() bool) {
	t.Helper()
	seed := *once.SeedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	roll := func(i int) *dice { return &dice{r: rand.New(rand.NewPCG(seed, uint64(i)))} }
	var processes [3]atomic.Pointer[chainProcess]
	for i := range processes {
		processes[i].Store(c.process(roll(i)))
	}
	var clients sync.WaitGroup
	began := time.Now()
	for i := range 8 {
		dice := roll(100 + i)
		clients.Go(func() {
			for n := 0; c.faults.Total() < c.most && !found() && time.Since(began) < 10*time.Minute; n++ {
				order := fmt.Sprintf("order-%d-%d", i/2, n) // of two clients
				for !found() {
					at := &processes[dice.n(len(processes))]
					p := at.Load()
					w, ok := p.ask(t.Context(), order)
					if ok && w.Code == http.StatusCreated {
						c.Gets(order, w.Body.Bytes())
						c.Answers.Add(w.Header().Get("Idempotent-Replayed"))
						break
					}
					if !ok && at.CompareAndSwap(p, c.process(roll(1000+dice.n(1<<30)))) {
						p.end(t.Context())
					}
					time.Sleep(dice.upTo(20 * time.Millisecond))
				}
			}
		})
	}
	clients.Wait()
	for i := range processes {
		processes[i].Load().end(t.Context())
	}
	c.background.Wait()
}

// check returns the violations.
func (c *chain) check() []string {
	known := c.Known()
	for at, answer := range known {
		if strings.Contains(at, "/") {
			continue
		}
		var all string
		for _, name := range chainSteps {
			if c.calls[at+"/"+name] == nil {
				c.Complain("%s was answered without the call %s", at, name)
			}
			all += string(known[at+"/"+name]) + "; "
		}
		if all != string(answer) {
			c.Complain("%s was answered %q, and its steps are %q", at, answer, all)
		}
	}
	return c.sofar()
}

// sofar returns the violations that were noted.
func (c *chain) sofar() []string {
	var rows []once.Row
	for name, answer := range c.Known() {
		rows = append(rows, once.Row{Name: name, Answer: answer})
	}
	return c.Violations(rows)
}

func (c *chain) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults, %d answers, %d steps called\n", c.faults.Total(), c.Answers.Total(), len(c.calls))
	c.faults.Write(&b)
	b.WriteString("paths\n")
	c.paths.Write(&b)
	return b.String()
}

// Orders of five steps, each of which calls another service. Processes are killed before, in and after each step, and
// paused for longer than their leases, and requests and replies are lost at the service and at the store, or arrive
// late. Each call has one key and one body; each step has one result, in all attempts; each order has one answer.
func TestSteps(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "injects hundreds of faults in real time")
	t.Parallel()
	for _, s := range chainStores {
		modes := map[string]lock.Option{"takeovers": lock.WithRerunAbandoned()}
		if s.transactions {
			modes["transactions"] = lock.WithTransaction()
		}
		for mode, opt := range modes {
			parallel.Run(t, s.name+"/"+mode, func(t *testing.T) {
				c := newChain(s.open(t), *once.FaultsFlag/8, opt)
				c.run(t, func() bool { return false })
				once.Save(t, "steps-"+s.name+"-"+mode, c.report())
				require.Empty(t, c.check(), c.report())
				require.GreaterOrEqual(t, c.faults.Total(), c.most)
				require.Positive(t, c.paths.Get("a step is replayed"))
			})
		}
	}
}

// chainTwins are chains with a planted fault, and without faults of their own.
var chainTwins = map[string]func(c *chain){
	"records before it runs": func(c *chain) {
		c.step = func(ctx context.Context, _ *chain, _, name string, fn func(ctx context.Context) ([]byte, error)) ([]byte, error) {
			runs := false
			kept, err := lock.Step(ctx, name, func(context.Context) ([]byte, error) { runs = true; return nil, nil })
			if err != nil || !runs {
				return kept, err
			}
			return fn(ctx)
		}
	},
	"a key of each attempt": func(c *chain) {
		c.keyOf = func(ctx context.Context, name string) (string, error) {
			return latch.DeriveKey(ctx, fmt.Sprint(name, lock.Attempt(ctx)))
		}
	},
	"a record that another holder may write": func(c *chain) {
		c.step = func(ctx context.Context, c *chain, order, name string, fn func(ctx context.Context) ([]byte, error)) ([]byte, error) {
			key, claim := "step="+order+name, lock.Claim{Token: "of all", Lease: time.Hour}
			e, err := c.store.Claim(ctx, key, claim)
			if err != nil || e.State == lock.Settled {
				return e.Receipt, err
			}
			result, err := fn(ctx)
			if err == nil {
				_, err = c.store.Settle(context.WithoutCancel(ctx), key, claim, result, time.Hour)
			}
			return result, err
		}
	},
	"goes on without a record": func(c *chain) {
		c.step = func(ctx context.Context, _ *chain, _, name string, fn func(ctx context.Context) ([]byte, error)) ([]byte, error) {
			var result []byte
			kept, err := lock.Step(ctx, name, func(ctx context.Context) (_ []byte, err error) {
				result, err = fn(ctx)
				return result, err
			})
			if err != nil && result != nil {
				return result, nil
			}
			return kept, err
		}
	},
}

// The twins: the campaign finds each of them.
func TestStepsCatches(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "runs a campaign for each planted fault")
	t.Parallel()
	for name, plant := range chainTwins {
		parallel.Run(t, name, func(t *testing.T) {
			c := newChain(memstore.New(), 3000, lock.WithRerunAbandoned())
			plant(c)
			c.run(t, func() bool { return len(c.sofar()) > 0 })
			require.NotEmpty(t, c.check(), c.report())
		})
	}
}
