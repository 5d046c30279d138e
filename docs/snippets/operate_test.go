package snippets_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/lockotel"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/console"
)

// drain is how long submissions that have begun may take to end.
const drain = 20 * time.Second

// serve serves until ctx ends, and then lets everything that has begun finish.
func serve(ctx context.Context, server *http.Server, listener net.Listener, locker *lock.Locker) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}

	// The Locker first: it refuses new submissions with 503 while the listener is
	// still open, waits for those that run, and releases what they held.
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err := locker.Close(patience)

	// Then the server: the last answers are on their way.
	patience, cancel = context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(patience))
}

// TestServeDrains: an order that has begun is finished and answered, a later one
// is refused with an answer, and then the port is closed.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	locker := lock.New(memstore.New())
	began, finish := make(chan struct{}), make(chan struct{})
	server := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler: latch.Lock(locker, "user", keyfunc.Header("X-User-ID"))(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-User-ID") == "42" {
					close(began)
					<-finish
				}
				w.WriteHeader(http.StatusCreated)
			})),
	}
	listener := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- serve(ctx, server, listener, locker) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	order := func(user string) (status int) { // 0: no answer
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listener.Addr().String(), http.NoBody))(t)
		r.Header.Set("X-User-ID", user)
		res, err := client.Do(r)
		if err != nil {
			return 0
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	first := make(chan int, 1)
	go func() { first <- order("42") }()
	<-began
	stop() // as the signal does

	late := http.StatusCreated
	for late == http.StatusCreated { // until the Locker is closing
		late = order("43")
	}
	close(finish)
	require.Equal(t, http.StatusServiceUnavailable, late)
	require.Equal(t, http.StatusCreated, <-first)
	require.NoError(t, <-served)
	require.Zero(t, order("44"))
}

func readyz(locker *lock.Locker) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		err := locker.Do(ctx, lock.Key("readyz", rand.Text()), func(context.Context) error { return nil })
		if err != nil {
			http.Error(w, "not ready: "+lock.Class(err), http.StatusServiceUnavailable) // not ready: dial
		}
	}
}

// The probe names the class of the failure, and nothing of its text.
func TestReadinessOfThePageNamesTheClass(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := must.Get(redisstore.Open(t.Context(), server.URL()))(t)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	probe := readyz(newLocker(t, store))
	answer := func() string {
		w := do(probe, http.MethodGet, "/readyz", "")
		return strconv.Itoa(w.Code) + " " + w.Body.String()
	}
	require.Eventually(t, func() bool { return answer() == "200 " }, 30*time.Second, 10*time.Millisecond)
	server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	require.Equal(t, "503 not ready: OOM\n", answer())
	server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	server.Stop()
	require.Equal(t, "503 not ready: silent\n", answer())
	server.Cont()
	server.Kill()
	require.Eventually(t, func() bool { return answer() == "503 not ready: dial\n" }, 30*time.Second, 10*time.Millisecond)
	server.Restart(t)
	require.Eventually(t, func() bool { return answer() == "200 " }, 30*time.Second, 10*time.Millisecond)
}

// TestManifest: the grace period covers all that may happen in it.
func TestManifest(t *testing.T) {
	t.Parallel()
	page := read(t, "../kubernetes.md")
	sleep := numberIn(t, page, `preStop:\s+sleep:\s+seconds: (\d+)`)
	grace := numberIn(t, page, `terminationGracePeriodSeconds: (\d+)`)
	require.Positive(t, sleep)
	require.Greater(t, time.Duration(grace-sleep)*time.Second, drain+5*time.Second)
}

func TestConsoleOfThePage(t *testing.T) {
	t.Parallel()
	mux, locker, operatorsOnly := http.NewServeMux(), newLocker(t, memstore.New()), auth.Require

	mux.Handle("/admin/locks", operatorsOnly(console.New(locker, console.WithName("orders, production"))))

	require.Equal(t, 200, ask(mux, "GET", "/admin/locks", "").Code)
}

// The observer of the page keeps the key of a lost lease, and the Locker's log does not.
func TestKeysOfLostLeasesOfThePage(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		var open, closed bytes.Buffer
		restricted := slog.New(slog.NewJSONHandler(&closed, nil))

		lost := lock.WithObserver(func(ctx context.Context, e lock.Event) {
			if e.Kind == lock.EventLost {
				restricted.InfoContext(ctx, "lease lost", "key", e.Key)
			}
		})

		locker := lock.New(memstore.New(), lost, lock.WithLogger(slog.New(slog.NewJSONHandler(&open, nil))), lock.WithMaxHold(time.Minute))
		err := locker.Do(t.Context(), lock.Key("user", "jane"), func(ctx context.Context) error { <-ctx.Done(); return nil })
		require.ErrorIs(t, err, lock.ErrLost)
		require.NoError(t, locker.Close(t.Context()))
		synctest.Wait()
		require.Contains(t, closed.String(), `"key":"user=jane"`)
		require.NotContains(t, open.String(), "jane")
	})
}

// The line of the log leads to the entry that it is about.
func TestLinksOfThePage(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	must.Get(store.Claim(t.Context(), keytext.Record("job=7"), lock.Claim{Token: "t", Lease: time.Millisecond, Linger: time.Hour}))(t)
	var out bytes.Buffer
	os := struct{ Stderr io.Writer }{&out} //nolint:revive // the code of the page writes to os.Stderr

	logger := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == "console" {
				a.Value = slog.StringValue("https://shop.example/admin/locks" + a.Value.String())
			}
			return a
		},
	}))
	locker := lock.New(store, lock.WithLogger(logger))

	require.Eventually(t, func() bool {
		_, _, err := locker.Once(t.Context(), "job=7", nil, nil)
		return errors.Is(err, lock.ErrAbandoned)
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, locker.Close(t.Context()))
	var line struct{ Console string }
	require.NoError(t, json.Unmarshal(out.Bytes(), &line), out.String())
	link := must.Get(url.Parse(line.Console))(t)
	mux := http.NewServeMux()
	mux.Handle("/admin/locks", console.New(newLocker(t, store)))
	got := ask(mux, "GET", link.RequestURI(), "")
	require.Equal(t, 200, got.Code)
	require.Contains(t, got.Body.String(), "outcome-unknown")
}

func TestErasureOfThePage(t *testing.T) {
	t.Parallel()
	ctx, userID, locker := t.Context(), "42", newLocker(t, memstore.New())
	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
	h := auth.Require(once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })))
	require.Equal(t, http.StatusCreated, ask(h, "POST", "/orders", "k").Code)

	erased, left, err := console.Erase(ctx, locker, userID) // for a user who has asked for that, and can send no more requests

	require.NoError(t, err)
	require.Equal(t, []int{1, 0}, []int{erased, left})
}

func observed(store lock.Store) (*lock.Locker, func()) {
	telemetry := lockotel.New()
	locker := lock.New(store, lock.WithObserver(telemetry.Observe), lock.WithOrigin(lockotel.Origin))
	stop := telemetry.Watch(locker) // the gauges

	return locker, stop
}

func TestTelemetryOfThePage(t *testing.T) {
	t.Parallel()
	locker, stop := observed(memstore.New())
	defer stop()
	require.NoError(t, locker.Do(t.Context(), lock.Key("user", "42"), func(context.Context) error { return nil }))
	require.NoError(t, locker.Close(t.Context()))
}

func TestLabelsOfThePage(t *testing.T) {
	t.Parallel()
	for _, telemetry := range []*lockotel.Telemetry{
		lockotel.New(lockotel.WithLabeler(func(ctx context.Context, labels ...attribute.KeyValue) {
			if labeler, ok := otelhttp.LabelerFromContext(ctx); ok {
				labeler.Add(labels...)
			}
		})),
	} {
		var labeler otelhttp.Labeler
		var app application
		h := stdlibRoutes(newLocker(t, memstore.New(), lock.WithObserver(telemetry.Observe)), app.handler(201), app.handler(200))
		labeled := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r.WithContext(otelhttp.ContextWithLabeler(r.Context(), &labeler)))
		})
		require.Equal(t, 201, ask(labeled, "POST", "/orders", "k").Code)
		require.NotEmpty(t, labeler.Get())
	}
}
