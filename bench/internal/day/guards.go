package day

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// answer is the reply that a customer sees.
type answer uint8

const (
	placed  answer = iota
	refused        // another request for it is at work, as far as the guard knows
	failed         // try again
	silent         // no answer in the client's time
)

func (a answer) String() string { return [...]string{"placed", "refused", "failed", "silent"}[a] }

// guard stands before the handler of a desk.
type guard interface {
	serve(ctx context.Context, q *request) answer
	close(ctx context.Context)
}

// Contender is a library as a desk uses it, with a lease or time to live.
type Contender struct {
	Name  string
	Keeps bool // answers, so that its keys are many
	desks int  // it can have, 0: any number
	open  func(ctx context.Context, at site) (guard, error)
}

// site holds the means that a contender gets at a desk.
type site struct {
	peer.Target

	network  *network
	process  *process
	database *faketx.Store // of all desks
	keep     time.Duration
}

// Contenders are those of a day: this library, with each of its guards, and its peers.
func Contenders() []Contender {
	both := func(l *lock.Locker, h http.Handler) http.Handler { return once(l, locked(l, h)) }
	all := []Contender{
		{"httplatch, Lock", false, 0, latched(locked, overRedis(sound))},
		{"httplatch, Idempotent", true, 0, latched(once, overRedis(sound))},
		{"httplatch, both", true, 0, latched(both, overRedis(sound))},
		{"httplatch, Idempotent in a transaction", false, 0, latched(once, overDatabase)},
		{"httplatch, both, memory of one desk", false, 1, latched(both, overMemory)},
	}
	for _, p := range peer.All() {
		switch p.Name {
		case peer.Ours, peer.Defaults, peer.GoZero: // go-zero makes its own connections: it cannot be in a bubble
		default:
			all = append(all, Contender{p.Name, false, 0, byHand(p)})
		}
	}
	return append(all, Contender{peer.IncidentName, false, 0, byHand(peer.Peer{Name: peer.IncidentName, Open: peer.OpenIncident})})
}

// Keep is for how long answers are kept: so long as a rule, and Long where customers may come back
// after Keep, since the desks that they meet are paused one after the other.
const (
	Keep = 15 * time.Minute
	Long = time.Hour
)

func locked(l *lock.Locker, h http.Handler) http.Handler {
	return latch.Lock(l, "order", keyfunc.Header("X-Order"))(h)
}

func once(l *lock.Locker, h http.Handler) http.Handler {
	return latch.Idempotent(l, keyfunc.Header("X-User"), keyfunc.Header("X-Order"))(h)
}

// Twins are this library's Lock without one of the things that keep its promises.
func Twins() (all []Contender) {
	for name, broken := range map[string]func(lock.Store) lock.Store{
		"a claim without an answer is not sent again": noRecovery,
		"what a claim may have left is not removed":   noCleanUp,
		"a claim without an answer counts as refused": heldIfUnknown,
		"a release without an answer is not repeated": noRepeat,
	} {
		all = append(all, Contender{name, false, 0, latched(locked, overRedis(broken))})
	}
	return all
}

func sound(s lock.Store) lock.Store { return s }

// latched returns a guard of this library over a store. end is called when the guard is closed.
func latched(wrap func(*lock.Locker, http.Handler) http.Handler, over func(site) (s lock.Store, end func())) func(context.Context, site) (guard, error) {
	return func(_ context.Context, at site) (guard, error) {
		store, end := over(at)
		work := (*desk).work
		options := []lock.Option{
			lock.WithLease(at.Lease), lock.WithKeep(at.keep), lock.WithLogger(slog.New(slog.DiscardHandler)),
			lock.WithRerunAbandoned(), // handlers look for the order before they place it, or place it with the receipt
		}
		if _, ok := store.(lock.Transactor); ok {
			work, options = (*desk).insert, append(options, lock.WithTransaction())
		}
		l := lock.New(store, options...)
		return &latchGuard{locker: l, handler: wrap(l, handler(work)), end: end}, nil
	}
}

// overRedis is a store over the client that the peers have, with what over does to it.
func overRedis(over func(lock.Store) lock.Store) func(site) (lock.Store, func()) {
	return func(at site) (lock.Store, func()) {
		client := peer.NewClient(at.Target)
		store := redisstore.New(client)
		return over(store), func() {
			_ = store.Close()
			_ = client.Close()
		}
	}
}

// overMemory is a store in the desk's own process.
func overMemory(site) (lock.Store, func()) { return memstore.New(), func() {} }

// overDatabase returns a client of the desks' database. Each step meets the faults that requests
// to a server meet.
func overDatabase(at site) (lock.Store, func()) {
	c := at.database.Client()
	for _, step := range []faketx.Step{
		faketx.Claim, faketx.Renew, faketx.Settle, faketx.Release, faketx.Get,
		faketx.Begin, faketx.Commit, faketx.Outcome, faketx.Rollback,
	} {
		c.Every(step, func(ctx context.Context, apply func() error) error { return at.network.step(ctx, at.process, apply) })
	}
	return c, func() {}
}

type latchGuard struct {
	locker  *lock.Locker
	handler http.Handler
	end     func()
}

type requestKey struct{}

// handler is the handler of an order, which has a desk do the work.
func handler(work func(*desk, context.Context, *request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.Context().Value(requestKey{}).(*request) //nolint:errcheck,forcetypeassert // serve puts it there
		if err := work(q.desk, r.Context(), q); err != nil {
			http.Error(w, "not placed", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "placed")
	}
}

func (g *latchGuard) serve(ctx context.Context, q *request) answer {
	r := httptest.NewRequestWithContext(context.WithValue(ctx, requestKey{}, q), http.MethodPost, "/orders", http.NoBody)
	r.Header.Set("X-User", q.order.customer.name)
	r.Header.Set("X-Order", q.order.id)
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, r)
	switch w.Code {
	case http.StatusCreated:
		return placed
	case http.StatusConflict, http.StatusTooManyRequests:
		return refused
	default:
		return failed
	}
}

func (g *latchGuard) close(ctx context.Context) {
	_ = g.locker.Close(ctx)
	g.end()
}

// byHand is a guard as the README of a lock library has it: take the key, work, give it
// back.
func byHand(p peer.Peer) func(context.Context, site) (guard, error) {
	return func(ctx context.Context, at site) (guard, error) {
		l, err := p.Open(ctx, at.Target)
		return handGuard{l}, err
	}
}

type handGuard struct{ locker peer.Locker }

func (g handGuard) serve(ctx context.Context, q *request) answer {
	held, err := g.locker.Acquire(ctx, "order:"+q.order.customer.name)
	switch {
	case errors.Is(err, peer.ErrRefused):
		return refused
	case err != nil:
		return failed
	}
	defer func() { _ = held.Release(context.WithoutCancel(ctx)) }()
	if q.desk.work(peer.ContextOf(ctx, held), q) != nil {
		return failed
	}
	return placed
}

func (g handGuard) close(ctx context.Context) { _ = g.locker.Close(ctx) }

// dialer returns the dial function of a contender in p.
func (n *network) dialer(p *process) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) { return n.dial(p) }
}
