package chain_test

import (
	"context"
	crand "crypto/rand"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// The environment of a service.
const (
	addrVariable   = "LATCH_TEST_CHAIN_ADDR"
	nextVariable   = "LATCH_TEST_CHAIN_NEXT" // the URL of the next service; the provider has none
	redisVariable  = "LATCH_TEST_CHAIN_REDIS"
	deathsVariable = "LATCH_TEST_CHAIN_DEATHS" // one in so many moments; 0: none
	newKeyVariable = "LATCH_TEST_CHAIN_NEW_KEYS"
)

// service is the handler of one process.
type service struct {
	role, next string
	deaths     int
	rows       *redis.Client
	client     *http.Client
}

// serve is the main function of a service.
func serve(role string) error {
	opts, err := redis.ParseURL(os.Getenv(redisVariable))
	if err != nil {
		return err
	}
	s := &service{role: role, next: os.Getenv(nextVariable), rows: redis.NewClient(opts)}
	if s.deaths, err = strconv.Atoi(os.Getenv(deathsVariable)); err != nil {
		return err
	}
	h := http.HandlerFunc(s.charge)
	if s.next != "" {
		h = s.guarded()
	}
	server := &http.Server{Addr: os.Getenv(addrVariable), Handler: h, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

// guarded is a service of ours. Its lease is short: a repeat waits for it after each death.
func (s *service) guarded() http.HandlerFunc {
	s.client = &http.Client{Transport: client.Transport(
		&http.Transport{DisableKeepAlives: true},
		client.WithMaxWait(3*time.Second), client.WithBackoff(5*time.Millisecond, 50*time.Millisecond), client.WithBudget(100, 100),
	), Timeout: 10 * time.Second}
	locker := lock.New(
		redisstore.New(s.rows, redisstore.WithPrefix(s.role+":")),
		lock.WithRerunAbandoned(), lock.WithLease(time.Second), lock.WithLogger(slog.New(slog.DiscardHandler)),
	)
	guard := latch.Idempotent(locker, keyfunc.Global, keyfunc.IdempotencyKey, latch.WithKeySecret([]byte("the secret of "+s.role)))
	h := guard(http.HandlerFunc(s.order))
	return func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(&dying{w, s}, r) }
}

// order leaves a row for the order, and passes it on.
func (s *service) order(w http.ResponseWriter, r *http.Request) {
	order, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "half a request", http.StatusBadRequest)
		return
	}
	s.mayDie()
	id, _ := latch.Key(r.Context())
	if err := s.row(r.Context(), string(order), id); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	s.mayDie()
	ctx := client.Step(r.Context(), "next")
	if os.Getenv(newKeyVariable) != "" {
		ctx = client.WithKey(r.Context(), crand.Text())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.next, strings.NewReader(string(order)))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	resp, err := s.client.Do(req)
	s.mayDie()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		http.Error(w, resp.Status, http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// charge is the provider, which charges once for each key.
func (s *service) charge(w http.ResponseWriter, r *http.Request) {
	order, err := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	if err != nil || key == "" {
		http.Error(w, "half a request", http.StatusBadRequest)
		return
	}
	s.mayDie()
	_, err = s.rows.SetNX(r.Context(), "key:"+key, string(order), 0).Result()
	if err == nil {
		var first string
		if first, err = s.rows.Get(r.Context(), "key:"+key).Result(); err == nil && first != string(order) {
			http.Error(w, "idempotency_error", http.StatusBadRequest)
			return
		}
	}
	if err == nil {
		err = s.row(r.Context(), string(order), key)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	s.mayDie()
	w.WriteHeader(http.StatusCreated)
}

// row leaves the effect of the order. A second one with the same id is the same: id is the
// primary key.
func (s *service) row(ctx context.Context, order, id string) error {
	return s.rows.SAdd(ctx, effectsOf(s.role, order), id).Err()
}

func effectsOf(role, order string) string { return "effects:" + role + ":" + order }

// mayDie kills this process, once in so many calls.
func (s *service) mayDie() {
	if s.deaths == 0 || rand.IntN(s.deaths) > 0 {
		return
	}
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {} // until it is gone
}

// dying may die when an answer is settled, and not yet sent.
type dying struct {
	http.ResponseWriter

	service *service
}

func (d *dying) WriteHeader(status int) {
	d.service.mayDie()
	d.ResponseWriter.WriteHeader(status)
}

func (d *dying) Unwrap() http.ResponseWriter { return d.ResponseWriter }
