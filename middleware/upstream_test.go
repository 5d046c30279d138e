package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var bothStores = map[string]func(t *testing.T) lock.Store{
	"memory": func(*testing.T) lock.Store { return memstore.New() },
	"redis":  redisStore,
}

// problemBase begins the types of our problems.
const problemBase = "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#"

// TestUpstreamRefusals checks which answers of a handler count as the refusal of a guard behind a
// proxy, in a guard that keeps every other answer: the header decides, and not the body.
func TestUpstreamRefusals(t *testing.T) {
	t.Parallel()
	ours := `{"type":"` + problemBase + `held","title":"t","status":409}`
	tests := map[string]struct {
		status int
		mark   string // Latch-Problem; "": none
		body   string
		kept   bool
	}{
		"marked":          {409, "held", ours, false},
		"another status":  {503, "unavailable", ours, false},
		"an unknown kind": {422, "of-the-future", ours, false},
		"another format":  {400, "key-missing", "no key", false},
		"no body":         {409, "held", "", false},
		"a long body":     {409, "held", strings.Repeat("t", 3<<20), false},
		"below 400":       {201, "held", ours, true},
		"not marked":      {409, "", ours, true},
	}
	for name, tt := range tests {
		for _, flushes := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", flushes: ", flushes), func(t *testing.T) {
				t.Parallel()
				var e effects
				h := once(newLocker(t, memstore.New()), latch.WithFinal(func(int) bool { return true }))(
					e.then(func(w http.ResponseWriter, _ *http.Request) {
						if tt.mark != "" {
							w.Header().Set("Latch-Problem", tt.mark)
						}
						w.Header().Set("Content-Length", strconv.Itoa(len(tt.body)))
						w.WriteHeader(tt.status)
						if flushes {
							require.NoError(t, http.NewResponseController(w).Flush())
						}
						_, _ = io.WriteString(w, tt.body)
					}))
				require.Equal(t, tt.status, serve(h, keyed("k")).Code)
				again := serve(h, keyed("k"))
				require.Equal(t, tt.status, again.Code)
				require.Equal(t, tt.body, again.Body.String())
				require.Equal(t, tt.kept, again.Header().Get("Idempotent-Replayed") == "true")
			})
		}
	}
}

// TestRefusalAfterCommitIsNotKept: the effect has happened, so the handler does not run again. But
// the refusal of a service is no answer to a repeat.
func TestRefusalAfterCommitIsNotKept(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]http.Handler{
		"of a service": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Latch-Problem", "held")
			w.WriteHeader(http.StatusConflict)
		}),
		"of the handler": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			(&latch.Problem{Status: http.StatusConflict}).Respond(w, r, nil)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var e effects
			h := once(newLocker(t, memstore.New()))(e.then(func(w http.ResponseWriter, r *http.Request) {
				require.NoError(t, lock.Commit(r.Context()))
				refuse.ServeHTTP(w, r)
			}))
			require.Equal(t, http.StatusConflict, serve(h, keyed("k")).Code)
			requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, serve(h, keyed("k")))
			e.require(t, 1)
		})
	}
}
