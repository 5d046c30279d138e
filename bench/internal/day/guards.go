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

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// answer is what a customer sees.
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
	Name string
	// Times are for how long it writes keys, so that a failover knows which are young.
	Times func(ttl time.Duration) []time.Duration
	Keeps bool // answers, so that its keys are many
	open  func(ctx context.Context, t peer.Target) (guard, error)
}

// Contenders are those of a day: this library, with each of its guards, and its peers.
func Contenders() []Contender {
	lease := func(ttl time.Duration) []time.Duration { return []time.Duration{ttl} }
	ours := func(ttl time.Duration) []time.Duration { return []time.Duration{ttl, 5 * time.Second} }
	kept := func(ttl time.Duration) []time.Duration {
		return []time.Duration{ttl, 5 * time.Second, Keep, ttl + Keep}
	}
	all := []Contender{
		{"httplatch, Lock", ours, false, latched(locked, sound)},
		{"httplatch, Idempotent", kept, true, latched(once, sound)},
		{"httplatch, both", kept, true, latched(func(l *lock.Locker, h http.Handler) http.Handler { return once(l, locked(l, h)) }, sound)},
	}
	for _, p := range peer.All() {
		switch p.Name {
		case peer.Ours, peer.Defaults, peer.GoZero: // go-zero makes its own connections: it cannot be in a bubble
		default:
			all = append(all, Contender{p.Name, lease, false, byHand(p)})
		}
	}
	return append(all, Contender{peer.IncidentName, lease, false, byHand(peer.Peer{Name: peer.IncidentName, Open: peer.OpenIncident})})
}

// Keep is for how long answers are kept.
const Keep = 15 * time.Minute

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
		all = append(all, Contender{name, func(ttl time.Duration) []time.Duration { return []time.Duration{ttl} }, false, latched(locked, broken)})
	}
	return all
}

func sound(s lock.Store) lock.Store { return s }

// latched is a guard of this library, over the store that the peers have.
func latched(wrap func(*lock.Locker, http.Handler) http.Handler, over func(lock.Store) lock.Store) func(context.Context, peer.Target) (guard, error) {
	return func(_ context.Context, t peer.Target) (guard, error) {
		g := &latchGuard{client: peer.NewClient(t)}
		g.store = redisstore.New(g.client)
		// Handlers look for the order before they place it, so they may run again.
		g.locker = lock.New(over(g.store), lock.WithLease(t.Lease), lock.WithKeep(Keep), lock.WithRerunAbandoned(),
			lock.WithLogger(slog.New(slog.DiscardHandler)))
		g.handler = wrap(g.locker, http.HandlerFunc(handle))
		return g, nil
	}
}

type latchGuard struct {
	client  *redis.Client
	store   *redisstore.Store
	locker  *lock.Locker
	handler http.Handler
}

type requestKey struct{}

// handle is the handler of an order.
func handle(w http.ResponseWriter, r *http.Request) {
	q := r.Context().Value(requestKey{}).(*request) //nolint:errcheck,forcetypeassert // serve puts it there
	if err := q.desk.work(r.Context(), q); err != nil {
		http.Error(w, "not placed", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "placed")
}

func (g *latchGuard) serve(ctx context.Context, q *request) answer {
	r := httptest.NewRequestWithContext(context.WithValue(ctx, requestKey{}, q), http.MethodPost, "/orders", http.NoBody)
	r.Header.Set("X-User", q.order.customer)
	r.Header.Set("X-Order", q.order.customer)
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
	_ = g.store.Close()
	_ = g.client.Close()
}

// byHand is a guard as the README of a lock library has it: take the key, work, give it
// back.
func byHand(p peer.Peer) func(context.Context, peer.Target) (guard, error) {
	return func(ctx context.Context, t peer.Target) (guard, error) {
		l, err := p.Open(ctx, t)
		return handGuard{l}, err
	}
}

type handGuard struct{ locker peer.Locker }

func (g handGuard) serve(ctx context.Context, q *request) answer {
	held, err := g.locker.Acquire(ctx, "order:"+q.order.customer)
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

// dialer is what the contender of a process dials with.
func (n *network) dialer(p *process) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) { return n.dial(p) }
}
