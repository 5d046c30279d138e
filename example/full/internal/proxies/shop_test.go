package proxies_test

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// The environment of a server.
const (
	addrVariable  = "LATCH_TEST_PROXIES_ADDR"
	redisVariable = "LATCH_TEST_PROXIES_REDIS"
	guardVariable = "LATCH_TEST_PROXIES_GUARD"
)

// guarding is the way in which the servers guard their orders.
type guarding string

const (
	guarded   guarding = "guarded"
	impatient guarding = "impatient" // a repeat does not wait for the first answer
	repeated  guarding = "repeated"  // nor here, but it gets a status that clients repeat
	unguarded guarding = "unguarded"
)

// shop is the handler of a server.
type shop struct {
	rows    *redis.Client
	running atomic.Int64
}

// serve is the main function of a server, which ends well after SIGTERM.
func serve(addr string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	opts, err := redis.ParseURL(os.Getenv(redisVariable))
	if err != nil {
		return err
	}
	s := &shop{rows: redis.NewClient(opts)}
	locker := lock.New(
		redisstore.New(s.rows),
		// The row has the key of its order, so that the order of a killed process can run again.
		lock.WithRerunAbandoned(),
		lock.WithLease(5*time.Second), lock.WithBudget(2*time.Second),
		lock.WithLogger(slog.New(slog.DiscardHandler)),
	)
	orders := http.Handler(http.HandlerFunc(s.order))
	if how := guarding(os.Getenv(guardVariable)); how != unguarded {
		var opts []latch.IdempotentOption
		if how != guarded {
			locker = locker.With(lock.WithWait(0))
		}
		if how == repeated {
			opts = append(opts, latch.WithInProgressStatus(http.StatusServiceUnavailable))
		}
		orders = latch.Idempotent(locker, keyfunc.Global, keyfunc.IdempotencyKey, opts...)(orders)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", orders)
	mux.HandleFunc("GET /running", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, s.running.Load()) })
	server := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	// As docs/kubernetes.md has it.
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return errors.Join(locker.Close(patience), server.Shutdown(patience))
}

// order places an order in the middle of its work. Only its first run takes long.
func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	intent, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "half a request", http.StatusBadRequest)
		return
	}
	work, err := time.ParseDuration(r.Header.Get("X-Work"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.running.Add(1)
	defer s.running.Add(-1)
	id, ok := latch.Key(r.Context())
	if !ok {
		id = crand.Text()
	}
	ctx := context.WithoutCancel(r.Context()) // without a guard, it ends when the proxy gives up
	runs, err := s.rows.Incr(ctx, runsOf(string(intent))).Result()
	if runs > 1 {
		work = 0 // without a guard, a repeat would be as late as the first request
	}
	time.Sleep(work / 2)
	if err == nil {
		err = s.rows.SAdd(ctx, ordersOf(string(intent)), id).Err()
	}
	time.Sleep(work / 2)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, "order of %s", intent)
}

func runsOf(intent string) string   { return "runs:" + intent }
func ordersOf(intent string) string { return "orders:" + intent }

// replica is a server as the test has it.
type replica struct {
	*process.Program

	t    *testing.T
	addr string
	env  []string
	pid  int
}

func startReplica(t *testing.T, redisURL string, how guarding) *replica {
	t.Helper()
	port, err := process.FreePort()
	require.NoError(t, err)
	r := &replica{t: t, addr: fmt.Sprintf("127.0.0.1:%d", port)}
	r.env = append(os.Environ(), addrVariable+"="+r.addr, redisVariable+"="+redisURL, guardVariable+"="+string(how))
	r.Program, err = process.New("shop", process.Killed, nil)
	require.NoError(t, err)
	t.Cleanup(r.Remove)
	r.Restart(t, r.start)
	return r
}

func (r *replica) start() error {
	cmd := exec.Command(os.Args[0])
	cmd.Env = r.env
	return r.Start(cmd, func(pid int) bool { r.pid = pid; return listens(r.addr) })
}

// works reports whether the server works on orders.
func (r *replica) works() bool {
	r.t.Helper()
	resp, err := http.Get("http://" + r.addr + "/running")
	require.NoError(r.t, err)
	defer resp.Body.Close()
	n, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return string(n) != "0"
}

// stop ends the server as an operator does.
func (r *replica) stop() {
	r.t.Helper()
	require.NoError(r.t, syscall.Kill(r.pid, syscall.SIGTERM))
	require.True(r.t, process.Eventually(func() bool { return !r.Running() }), "it does not end: %s", r.Log())
	require.Equal(r.t, "exit status 0", r.State(), r.Log())
}
