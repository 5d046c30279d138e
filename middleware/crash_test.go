package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestCrash: a process dies in its handler, and an abandoned request may run again. It does not if
// the handler has done something that is noted at the store first.
func TestCrash(t *testing.T) {
	t.Parallel()
	calls := func(through via) func(*testing.T, http.ResponseWriter, *http.Request, func()) {
		return func(_ *testing.T, _ http.ResponseWriter, r *http.Request, dies func()) {
			client := through(roundTrip(func(r *http.Request) (*http.Response, error) { dies(); return lost(r) }))
			res, err := client.RoundTrip(httptest.NewRequestWithContext(r.Context(), http.MethodPost, "http://provider.example/", nil))
			if err == nil {
				_ = res.Body.Close()
			}
		}
	}
	noted := wantProblem{status: 409, kind: "in-progress", retryAfter: "1"} // nothing says that it has ended
	for name, tt := range map[string]struct {
		runs  func(t *testing.T, w http.ResponseWriter, r *http.Request, dies func())
		again wantProblem // the refusal of the repeat; without a status it runs
	}{
		"nothing": {func(_ *testing.T, _ http.ResponseWriter, _ *http.Request, dies func()) { dies() }, wantProblem{}},
		"a stream has begun": {func(t *testing.T, w http.ResponseWriter, _ *http.Request, dies func()) {
			t.Helper()
			require.NoError(t, http.NewResponseController(w).Flush())
			dies()
		}, noted},
		"Commit": {func(t *testing.T, _ http.ResponseWriter, r *http.Request, dies func()) {
			t.Helper()
			require.NoError(t, lock.Commit(r.Context()))
			dies()
		}, noted},
		"Unknown": {func(t *testing.T, _ http.ResponseWriter, r *http.Request, dies func()) {
			t.Helper()
			require.NoError(t, latch.Unknown(r.Context()))
			dies()
		}, noted},
		"a call through Upstream": {calls(upstream), noted},
		"a plain call":            {calls(plain), wantProblem{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory := memstore.New()
				dying := &mortalStore{Store: memory}
				opts := []lock.Option{lock.WithRerunAbandoned(), lock.WithLogger(quiet)}
				dead, alive := lock.New(dying, opts...), lock.New(memory, opts...)
				gone, restart := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(gone)
					serve(once(dead)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						tt.runs(t, w, r, func() { dying.Dead.Store(true); <-restart })
					})), keyed("k"))
				}()
				time.Sleep(time.Minute)
				again := serve(once(alive)(http.HandlerFunc(created)), keyed("k"))
				if tt.again.status == 0 {
					require.Equal(t, http.StatusCreated, again.Code)
				} else {
					requireProblem(t, tt.again, again)
				}
				close(restart)
				<-gone
				end(dead)
				end(alive)
				time.Sleep(48 * time.Hour) // the clean-up of the dead has given up
			})
		})
	}
}
