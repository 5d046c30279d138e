package campaign_test

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgproxy"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	latch "github.com/httplatch/httplatch/middleware"
)

const (
	pairLease   = time.Second
	pairBudget  = 300 * time.Millisecond
	pairCallers = 8
)

// route is the way from a service to the pair.
type route int

const (
	firstHost route = iota // both hosts in its URL, with the default of target_session_attrs
	lastHost               // the same in the other order
	bouncer                // PgBouncer, which is pointed to the new primary
	anyHost                // a balancer that does not know which host is the primary
	routes
)

// service is one process of the shop.
type service struct {
	w       *pair
	route   route
	proxies []*pgproxy.Proxy
	pool    *pgxpool.Pool
	store   *pgstore.Store
	locker  *lock.Locker
	handler http.Handler
}

func (w *pair) newService(by route) *service {
	s := &service{w: w, route: by}
	s.begin()
	return s
}

func (s *service) begin() {
	w := s.w
	upstreams := []string{w.hosts[0].Addr(), w.hosts[1].Addr()}
	switch s.route {
	case lastHost:
		upstreams[0], upstreams[1] = upstreams[1], upstreams[0]
	case bouncer:
		upstreams = []string{w.bouncer.Addr()}
	}
	f := newFaults(&w.faults, w.isQuiet, w.r)
	s.proxies = nil
	var addrs []string
	for _, upstream := range upstreams {
		p := pgproxy.Start(w.t, upstream, f.decide)
		s.proxies, addrs = append(s.proxies, p), append(addrs, p.Addr())
	}
	hosts := strings.Join(addrs, ",")
	if s.route == anyHost {
		hosts = addrs[0]
	}
	cfg, err := pgxpool.ParseConfig(strings.Replace(s.proxies[0].URL(shopName, "postgres"), addrs[0], hosts, 1))
	require.NoError(w.t, err)
	cfg.MaxConns = 4
	switch s.route {
	case anyHost:
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addrs[rand.IntN(len(addrs))]) //nolint:wrapcheck // as it is
		}
	case bouncer:
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	s.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(w.t.Context()), cfg)
	require.NoError(w.t, err)
	s.store = pgstore.New(s.pool)
	var store lock.Store = &watched{Store: s.store, paths: &w.paths, faults: f}
	if w.broken != nil {
		store = w.broken(s.store, s.pool)
	}
	s.locker = lock.New(store, lock.WithTransaction(), lock.WithLease(pairLease), lock.WithBudget(pairBudget),
		lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithKeep(time.Hour))
	s.handler = latch.Idempotent(s.locker, keyfunc.Global, keyfunc.IdempotencyKey)(http.HandlerFunc(sell))
}

// sell inserts the order that the body names, with the answer that the request asks for.
func sell(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pairLease)
	defer cancel()
	tx, ok := txOf(ctx)
	if !ok {
		http.Error(w, "no transaction", http.StatusInternalServerError)
		return
	}
	answer := r.Header.Get("Answer")
	if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1, $2)", r.Header.Get("Idempotency-Key"), []byte(answer)); err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(answer))
}

func (s *service) end() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.w.t.Context()), pairLease)
	defer cancel()
	_ = s.locker.Close(ctx)
	for _, p := range s.proxies {
		p.Close()
	}
	s.store.Close()
	s.pool.Close()
}

func (s *service) restart() {
	s.end()
	s.begin()
}

// result is the part of an answer that matters to its client.
type result uint8

const (
	answered result = iota
	failed          // certainly, without an effect
	unsure
)

// post orders once.
func (s *service) post(ctx context.Context, name string, r *rand.Rand) result {
	w := s.w
	if !w.isQuiet() && r.IntN(8) == 0 { // its client goes away
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(500))*time.Millisecond)
		defer cancel()
	}
	answer := fmt.Sprintf("%s: %s", name, crand.Text())
	q := httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", nil)
	q.Header.Set("Idempotency-Key", name)
	q.Header.Set("Answer", answer)
	a := httptest.NewRecorder()
	early := w.begins()
	s.handler.ServeHTTP(a, q)
	switch kind := kindOf(a); {
	case a.Code == http.StatusCreated:
		w.Answers.Add("201")
		w.gets(name, a.Body.Bytes(), early)
		return answered
	case a.Code == http.StatusOK: // there is no order
		w.Answers.Add("none")
		return unsure
	case kind == latch.ProblemUnconfirmed:
		w.Answers.Add(fmt.Sprint(a.Code, " ", kind))
		return unsure
	case kind == latch.ProblemOutcomeUnknown, kind == latch.ProblemKeyReused, kind == latch.ProblemResultNotReplayable:
		w.Complain("%s was answered %q", name, a.Body)
		return unsure
	default:
		w.Answers.Add(fmt.Sprint(a.Code, " ", kind))
		w.Denies([]byte(answer))
		return failed
	}
}

func kindOf(a *httptest.ResponseRecorder) latch.ProblemKind {
	var p latch.Problem
	_ = json.Unmarshal(a.Body.Bytes(), &p) // the answer of the handler has none
	return p.Kind()
}
