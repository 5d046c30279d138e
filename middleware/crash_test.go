package middleware_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// TestDeathInTheMiddleOfAStream: the sent answer cannot be replayed, and its
// tombstone was stored before the first byte was sent.
func TestDeathInTheMiddleOfAStream(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]lock.Option{nil, {lock.WithRerunAbandoned()}} {
		synctest.Test(t, func(t *testing.T) {
			memory := memstore.New()
			dying := &mortalStore{Store: memory}
			dead, alive := lock.New(dying, opts...), lock.New(memory, opts...)
			t.Cleanup(func() { end(dead); end(alive) })
			serve(once(dead)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				require.NoError(t, http.NewResponseController(w).Flush())
				dying.Dead.Store(true)
				time.Sleep(time.Hour)
				requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, serve(once(alive)(mustNotRun(t)), keyed("k")))
			})), keyed("k"))
		})
	}
}

// TestRedisFaults loses requests and replies of every step, on a real server.
// There is one effect, whose answer reaches its client, and in the end the
// record.
func TestRedisFaults(t *testing.T) {
	t.Parallel()
	steps := map[string]respproxy.Match{
		"claim":  {Name: "set", Count: 1},
		"settle": {Name: "evalsha", Count: 1},
	}
	faults := map[string]respproxy.Action{
		"not applied, connection closed": respproxy.Drop(respproxy.Close),
		"applied, connection closed":     respproxy.Swallow(respproxy.Close),
		"not applied, no answer":         respproxy.Drop(respproxy.Hang),
		"applied, no answer":             respproxy.Swallow(respproxy.Hang),
		"applied late":                   respproxy.HoldFor(700 * time.Millisecond),
		"refused":                        respproxy.ReplyError("READONLY You can't write against a read only replica."),
		"refused for want of memory":     respproxy.ReplyError("OOM command not allowed when used memory > 'maxmemory'."),
	}
	for step, match := range steps {
		for name, fault := range faults {
			for kind, answer := range map[string]http.HandlerFunc{
				"buffered": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") },
				"streamed": func(w http.ResponseWriter, _ *http.Request) {
					_, _ = io.WriteString(w, "done")
					_ = http.NewResponseController(w).Flush()
				},
			} {
				t.Run(strings.Join([]string{step, name, kind}, "/"), func(t *testing.T) {
					t.Parallel()
					proxy := respproxy.Start(t, redistest.Shared(t).Addr())
					l := newLocker(t, openRedis(t, proxy.URL()), lock.WithLogger(quiet))
					// The scripts are loaded, so that the fault meets evalsha.
					serve(once(l)(http.HandlerFunc(created)), keyed("warm"))

					var e effects
					h := once(l)(e.then(answer))
					rule := proxy.On(match, fault)
					first := serve(h, keyed("k"))
					for began := time.Now(); rule.Hits()+int(e.n.Load()) == 0 && time.Since(began) < 10*time.Second; {
						first = serve(h, keyed("k")) // a busy machine may not even send the claim
					}
					rule.Wait(t, 1)
					if e.n.Load() == 1 {
						require.Equal(t, "done", first.Body.String(), "the answer of a handler that ran reaches its client")
					} else {
						requireProblem(t, wantProblem{status: 503, kind: "unavailable", retryAfter: "1"}, first)
					}
					require.Eventually(t, func() bool {
						w := serve(h, keyed("k"))
						if kind == "streamed" {
							return strings.Contains(w.Body.String(), "#result-not-replayable")
						}
						return w.Header().Get("Idempotent-Replayed") == "true" && w.Body.String() == "done"
					}, 10*time.Second, 20*time.Millisecond)
					e.require(t, 1)
				})
			}
		}
	}
}

// In re-run mode, committed work is never run again, even if any process vanished.
func TestCommitThenCrashInRerunMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		s := &mortalStore{Store: mem}
		opts := []lock.Option{lock.WithLogger(quiet), lock.WithRerunAbandoned()}
		dying := lock.New(s, opts...)
		out := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			serve(once(dying)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_ = lock.Commit(r.Context())
				<-out
			})), keyed("k"))
		}()
		synctest.Wait()
		s.Dead.Store(true)
		defer func() { s.Dead.Store(false); close(out); <-done; end(dying) }()
		time.Sleep(time.Minute) // two leases later
		l := newLocker(t, mem, opts...)
		w := serve(once(l)(mustNotRun(t)), keyed("k"))
		require.Equal(t, http.StatusConflict, w.Code)
	})
}
