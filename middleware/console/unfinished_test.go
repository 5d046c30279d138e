package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/console"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// The page of requests that were begun and not finished has their steps, and no results. The list of entries has steps
// only if it is asked for answers. An erasure leaves the steps of a request whose outcome is unknown: its next attempt
// needs them.
func TestUnfinishedRequests(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	steps := func(dies func(), status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, err := latch.Step(r.Context(), "charge <b>", func(context.Context) (string, error) { return "secret", nil })
			require.NoError(t, err)
			_, err = latch.Step(r.Context(), "courier", func(context.Context) (string, error) { return "", errors.New("no answer") })
			require.Error(t, err)
			dies()
			w.WriteHeader(status)
		}
	}
	l := guardtest.NewLocker(t, memory)
	secret := latch.WithKeySecret(make([]byte, 16))
	keyed(t, l, "done", "k", steps(func() {}, http.StatusCreated), secret)
	keyed(t, l, "failed", "k", steps(func() {}, http.StatusServiceUnavailable), secret)
	dying := &guardtest.MortalStore{Store: memory}
	dead := lock.New(dying, lock.WithLease(100*time.Millisecond), lock.WithBudget(50*time.Millisecond), lock.WithLogger(guardtest.Quiet))
	t.Cleanup(func() { guardtest.End(dead) })
	keyed(t, dead, "died", "k", steps(func() { dying.Dead.Store(true) }, http.StatusCreated), secret)

	o := operatorOf(t, l)
	var found struct {
		Unfinished []struct {
			Request struct{ Label string }
			Freed   bool
			Steps   []struct {
				Name, Key string
				Done      bool
			}
		}
		Trouble string
	}
	require.Eventually(t, func() bool {
		w := o.ask(http.MethodGet, "unfinished=1", "", "application/json")
		require.NotContains(t, w.Body.String(), "secret")
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &found))
		return len(found.Unfinished) == 2
	}, 30*time.Second, 10*time.Millisecond)
	require.Empty(t, found.Trouble)
	for _, u := range found.Unfinished {
		require.Equal(t, u.Request.Label == "failed", u.Freed)
		require.Len(t, u.Steps, 2)
		require.Equal(t, "charge <b>", u.Steps[0].Name)
		require.Len(t, u.Steps[0].Key, 32)
		require.True(t, u.Steps[0].Done)
		require.False(t, u.Steps[1].Done)
	}
	page := o.page("unfinished=1")
	require.Contains(t, page, "POST /orders of failed")
	require.Contains(t, page, "POST /orders of died")
	require.NotContains(t, page, "of done")
	require.NotContains(t, page, "secret")

	require.Len(t, o.list("").Entries, 1, "of the dead process")
	situations := map[string]int{}
	for _, e := range o.list("answers=1&q=courier").Entries {
		require.Contains(t, e.Summary, "The step courier of POST /orders of ")
		situations[e.Situation]++
	}
	require.Equal(t, map[string]int{"step": 3}, situations)
	require.Contains(t, o.page("answers=1&q=charge"), "The step charge &lt;b&gt; of POST /orders of done is done")

	for label, want := range map[string][2]int{"done": {3, 0}, "failed": {2, 0}, "died": {0, 3}} {
		erased, left, err := console.Erase(t.Context(), l, label)
		require.NoError(t, err)
		require.Equal(t, want, [2]int{erased, left}, label)
	}
}

// An erasure leaves a record that says only that the outcome of its request is unknown, with its steps.
func TestErasureLeavesAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	l := guardtest.NewLocker(t, memory)
	key := keytext.Record("lost")
	about := requestinfo.Request{Guard: "orders", Method: http.MethodPost, Path: "/orders", Label: "42", Began: time.Now()}
	for name, receipt := range map[string][]byte{key: record.Unknown(), keytext.Step(key, "charge"): []byte("\x01\x01charged")} {
		c := lock.Claim{Token: name, Owner: string(about.AppendTo([]byte("shop-7f:4711"))), Lease: time.Minute}
		put(t, memory, name, c)
		ok, err := memory.Settle(t.Context(), name, c, receipt, time.Hour)
		require.NoError(t, err)
		require.True(t, ok)
	}
	erased, left, err := console.Erase(t.Context(), l, "42")
	require.NoError(t, err)
	require.Equal(t, [2]int{0, 2}, [2]int{erased, left})

	w := operatorOf(t, l).ask(http.MethodDelete, "label=42", "", "application/json")
	require.JSONEq(t, `{"label":"42","erased":0,"left":2}`, w.Body.String())
}

// A store that cannot list has no such page.
func TestUnfinishedRequestsOfAStoreThatCannotList(t *testing.T) {
	t.Parallel()
	o := operatorOf(t, guardtest.NewLocker(t, struct{ lock.Store }{memstore.New()}))
	require.Contains(t, o.page("unfinished=1"), "Not all entries were read")
}
