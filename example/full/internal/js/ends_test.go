package js_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestStatusesThatEndAKey are those that the guard keeps: after any other, the same key runs again.
func TestStatusesThatEndAKey(t *testing.T) {
	t.Parallel()
	testmain.SkipIn(t, testmain.Quick, "starts node")
	node := exec.CommandContext(t.Context(), "node", "--input-type=module", "-e", `
		import { ends } from "./repeat.js";
		const all = [];
		for (let status = 200; status < 600; status++) if (ends(status)) all.push(status);
		console.log(JSON.stringify(all));`)
	if node.Err != nil {
		testmain.Unavailable(t, "no node: apt-get install nodejs", node.Err)
	}
	node.Dir = source
	output, err := node.Output()
	require.NoError(t, err)
	var ends []int
	require.NoError(t, json.Unmarshal(output, &ends))

	var kept []int
	once := latch.Idempotent(lock.New(memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey)
	for status := 200; status < 600; status++ {
		runs := 0
		h := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { runs++; w.WriteHeader(status) }))
		for range 2 {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", strconv.Itoa(status))
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		if runs == 1 {
			kept = append(kept, status)
		}
	}
	require.Equal(t, kept, ends)
}
