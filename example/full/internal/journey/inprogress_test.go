package journey_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// slowWork is longer than the pause of curl, and shorter than the pauses of go-retryablehttp
// together.
const slowWork = "2500ms"

// TestRepeatMeetsTheFirstRequest: the connection breaks when the whole request has been sent,
// and the desk takes long for the order. The repeat waits for its answer, and no
// caller is shown a 409 for an order that is placed, also by clients that repeat no 409.
func TestRepeatMeetsTheFirstRequest(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts the desk and other clients")
	t.Parallel()
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			rows, got := meet(t, s.name, startDesk(t, s.args(t)...))
			for i, r := range rows {
				require.Equal(t, figures{first: 1}, got[i], "%s, %s", r.guard.name, r.sender.name)
			}
		})
	}
}

// meet plays all rows of a store at once.
func meet(t *testing.T, store string, d *desk) ([]row, []figures) {
	t.Helper()
	var running sync.WaitGroup
	all := slowRows(store, d)
	got, errs := make([]figures, len(all)), make([]error, len(all))
	for i, r := range all {
		cuts := r.measure(t, false)
		at := cuts[slices.IndexFunc(cuts, func(c cut) bool { return c.dir == cutproxy.Request && c.after == c.of })]
		w := r.open(t)
		running.Go(func() { got[i], errs[i] = w.cut(t.Context(), at) })
	}
	running.Wait()
	for i, r := range all {
		require.NoError(t, errs[i], "%s, %s", r.guard.name, r.sender.name)
	}
	return all, got
}

// slowRows are those of guards for orders that promise something.
func slowRows(store string, d *desk) (all []row) {
	for _, g := range guards {
		if !g.promised || g.prepare != nil {
			continue
		}
		for _, c := range keyed {
			all = append(all, row{c, g, store, d, slowWork})
		}
	}
	for _, c := range []sender{curlOnce, keyAlone} {
		all = append(all, row{c, guards[0], store, d, slowWork})
	}
	return all
}
