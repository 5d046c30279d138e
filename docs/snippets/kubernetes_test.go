package snippets_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/walk"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
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
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- serve(ctx, server, listener, locker) }()

	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	// A connection that is to be closed is of no use for the next request.
	order := func(user string) (status int, closing bool, err error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listener.Addr().String(), http.NoBody)
		if err != nil {
			return 0, false, err
		}
		r.Header.Set("X-User-ID", user)
		res, err := transport.RoundTrip(r)
		if err != nil {
			return 0, false, err
		}
		return res.StatusCode, res.Close, res.Body.Close()
	}
	first := make(chan int, 1)
	go func() {
		status, _, err := order("42")
		assert.NoError(t, err)
		first <- status
	}()
	<-began
	stop() // as the signal does

	late, closing := http.StatusCreated, false
	for late == http.StatusCreated { // until the Locker is closing
		late, closing, err = order("43")
		require.NoError(t, err)
	}
	close(finish)
	require.Equal(t, http.StatusServiceUnavailable, late)
	require.True(t, closing)
	require.Equal(t, http.StatusCreated, <-first)
	require.NoError(t, <-served)
	_, _, err = order("44")
	require.Error(t, err)
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
	store, err := redisstore.Open(t.Context(), server.URL())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	probe := readyz(newLocker(t, store))
	answer := func() string {
		w := httptest.NewRecorder()
		probe(w, httptest.NewRequest("GET", "/readyz", nil))
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
	var manifest struct {
		Spec struct {
			Template struct {
				Spec struct {
					TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
					Containers                    []struct {
						Lifecycle struct {
							PreStop struct {
								Sleep struct{ Seconds int }
							} `yaml:"preStop"`
						}
					}
				}
			}
		}
	}
	for _, b := range walk.Blocks(t, "../kubernetes.md") {
		if b.Language == "yaml" {
			require.NoError(t, yaml.Unmarshal([]byte(b.Text), &manifest))
		}
	}
	pod := manifest.Spec.Template.Spec
	require.Len(t, pod.Containers, 1)
	sleep := time.Duration(pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
	require.Positive(t, sleep)
	require.Greater(t, time.Duration(pod.TerminationGracePeriodSeconds)*time.Second, sleep+drain+5*time.Second)
}
