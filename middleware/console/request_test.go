package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/sealed"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/console"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// keyed sends a request of user with a key to a guard of l.
func keyed(tb testing.TB, l *lock.Locker, user, key string, handler http.HandlerFunc, opts ...latch.IdempotentOption) *httptest.ResponseRecorder {
	tb.Helper()
	h := latch.Idempotent(l, guardtest.ByUser, keyfunc.IdempotencyKey, opts...)(handler)
	r := guardtest.Post(user)
	r.Header.Set("Idempotency-Key", key)
	return guardtest.Serve(h, r)
}

// vanish leaves the record of a request of user whose process has died.
func vanish(t *testing.T, memory lock.Store, user, key string, opts ...latch.IdempotentOption) {
	t.Helper()
	dying := &guardtest.MortalStore{Store: memory}
	l := lock.New(dying, lock.WithLogger(guardtest.Quiet))
	keyed(t, l, user, key, func(w http.ResponseWriter, _ *http.Request) {
		dying.Dead.Store(true)
		w.WriteHeader(http.StatusCreated)
	}, opts...)
	guardtest.End(l)
	time.Sleep(time.Minute)
}

// A customer whose keyed request was left by a process that died does not read that nothing is in the way.
func TestFindsTheRequestsOfAUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		vanish(t, memory, "42", "a", latch.WithName("orders"))
		l := guardtest.NewLocker(t, memory)
		require.Equal(t, http.StatusConflict, keyed(t, l, "42", "a", guardtest.Created).Code)
		for i := range 5 {
			require.Equal(t, http.StatusCreated, keyed(t, l, "42", fmt.Sprint("done-", i), guardtest.Created).Code)
		}
		require.Equal(t, http.StatusCreated, keyed(t, l, "43", "a", guardtest.Created).Code)
		o := operatorOf(t, l)

		for _, query := range []string{"q=42", "q=user%3D42", "q=%2FORDERS", "q=orders"} {
			found := o.list(query).Entries
			require.Len(t, found, 1, query)
			e := found[0]
			require.Equal(t, "outcome-unknown", e.Situation)
			require.Equal(t, "orders", e.Request.Guard)
			require.Equal(t, http.MethodPost, e.Request.Method)
			require.Equal(t, "/orders", e.Request.Path)
			require.Equal(t, "42", e.Request.Label)
			require.WithinDuration(t, time.Now().Add(-time.Minute), e.Request.Began, 5*time.Second)
			require.Contains(t, e.Summary, "POST /orders of 42 was begun at ")
			require.Contains(t, e.Summary, ", whose lease is over: it has ended, or it is paused or cut off, and may still leave its answer.")
		}
		require.Empty(t, o.list("q=user%3D4").Entries, "a value is meant as a whole")
		require.Len(t, o.list("q=42&answers=1").Entries, 6)
		require.Equal(t, "outcome-unknown", o.list("q=42&answers=1").Entries[0].Situation, "what waits for a decision comes first")
		require.Len(t, o.list("q=orders&answers=1").Entries, 7)

		page := o.page("q=user%3D42")
		require.Contains(t, page, "But the outcome of an earlier request is unknown, and its repeats are refused: see below.")
		require.Contains(t, page, "Outcome unknown")

		for _, digit := range "0156789" {
			require.Empty(t, o.list("answers=1&q="+string(digit)).Entries, "the key of a record is a hash")
		}
		for _, other := range []string{"142", "242", "342", "420"} {
			vanish(t, memory, other, "a", latch.WithName("orders"))
		}
		found := o.list("q=42").Entries
		require.Len(t, found, 5)
		require.Equal(t, "42", found[0].Request.Label, "what was asked for comes first")
	})
}

// A label replaces the scope, and none leaves nothing to be found by.
func TestLabels(t *testing.T) {
	t.Parallel()
	l := guardtest.NewLocker(t, memstore.New())
	header := func(r *http.Request) string { return r.Header.Get("X-Label") }
	h := latch.Dedupe(l, guardtest.ByUser, time.Minute, latch.WithLabel(header))(http.HandlerFunc(guardtest.Created))
	long := strings.Repeat("ä", 200)
	for i, label := range []string{"order 7", "", long, `<script>"&'`, "a\x1fb\x00\xff"} {
		r := guardtest.Post(fmt.Sprint("user ", i))
		r.Header.Set("X-Label", label)
		require.Equal(t, http.StatusCreated, guardtest.Serve(h, r).Code)
	}
	o := operatorOf(t, l)
	require.Len(t, o.list("answers=1&q=order+7").Entries, 1)
	require.Empty(t, o.list("answers=1&q=user").Entries)
	require.Len(t, o.list("answers=1&q="+url.QueryEscape("x="+long)).Entries, 1)
	require.Len(t, o.list("answers=1&q="+url.QueryEscape("x="+`<script>"&'`)).Entries, 1)
	require.Len(t, o.list("answers=1&q="+url.QueryEscape(`a\x1fb\x00\xff`)).Entries, 1)
	for _, e := range o.list("answers=1").Entries {
		require.Equal(t, "dedupe", e.Request.Guard)
		o.page("key=" + url.QueryEscape(e.Key)) // a valid page, with nothing in it but text
	}
	o.page("answers=1&limit=200")
}

// Of a sealed store, only a console that has the key reads whose a request was.
func TestSealedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		store := sealed.New(memory, guardtest.NewSeal(t, strings.Repeat("0", 32)))
		vanish(t, store, "secret 42", "a")
		l := guardtest.NewLocker(t, store)
		keyed(t, l, "secret 42", "b", guardtest.Created)
		for e, err := range memory.List(t.Context()) {
			require.NoError(t, err)
			require.NotContains(t, e.Owner, "secret")
			require.NotContains(t, e.Owner, "orders")
		}
		require.Len(t, operatorOf(t, l).list("q=secret+42&answers=1").Entries, 2)
		require.Contains(t, operatorOf(t, l).list("q=secret+42").Entries[0].Summary, "POST /orders of secret 42 was begun at ")
		require.Empty(t, operatorOf(t, guardtest.NewLocker(t, memory)).list("q=secret+42&answers=1").Entries)
	})
}

func TestErase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		vanish(t, memory, "42", "unknown")
		l := guardtest.NewLocker(t, memory)
		for _, key := range []string{"a", "b", "c"} {
			keyed(t, l, "42", key, guardtest.Created)
			keyed(t, l, "421", key, guardtest.Created)
		}
		lease := must.Get(l.Acquire(t.Context(), "user=42"))(t)
		o := operatorOf(t, l)

		require.Equal(t, http.StatusUnprocessableEntity, o.ask(http.MethodPost, "", o.eraseForm("42", "421"), browserAccept).Code)
		require.Len(t, o.list("q=42&answers=1").Entries, 8, "nothing was erased")

		erased, left, err := console.Erase(t.Context(), l, "42")
		require.NoError(t, err)
		require.Equal(t, []int{3, 1}, []int{erased, left})
		require.Len(t, o.list("q=42&answers=1").Entries, 5, "the lock, the one that is not known, and another user's")
		require.Equal(t, http.StatusCreated, keyed(t, l, "42", "a", guardtest.Created).Code)

		w := o.ask(http.MethodPost, "", o.eraseForm("42", "42"), browserAccept)
		require.Equal(t, http.StatusOK, w.Code)
		require.Contains(t, w.Body.String(), "1 stored answer erased.")
		require.Contains(t, w.Body.String(), "1 record of a request stays")

		w = o.ask(http.MethodDelete, "label=421", "", "application/json")
		require.Equal(t, http.StatusOK, w.Code)
		require.JSONEq(t, `{"label": "421", "erased": 3, "left": 0}`, w.Body.String())
		require.Equal(t, http.StatusBadRequest, o.ask(http.MethodDelete, "label=", "", "application/json").Code)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// What is kept of a joined scope is erased by its parts, by the label as the page shows it,
// and by repeated labels; an erasure that finds nothing says so, with the cure.
func TestEraseOfAJoinedScope(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	var out bytes.Buffer
	l := guardtest.NewLocker(t, memory, lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil))))
	tenantAndUser := keyfunc.Join(keyfunc.Header("X-Tenant"), keyfunc.Header("X-User"))
	h := latch.Idempotent(l, tenantAndUser, keyfunc.IdempotencyKey)(http.HandlerFunc(guardtest.Created))
	kept := func(tenant, user string, n int) {
		for i := range n {
			r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("x"))
			r.Header = http.Header{"X-Tenant": {tenant}, "X-User": {user}, "Idempotency-Key": {strconv.Itoa(i)}}
			require.Equal(t, http.StatusCreated, guardtest.Serve(h, r).Code)
		}
	}
	kept("acme", "42", 3)
	keyed(t, l, "acme&42", "single", guardtest.Created)
	o := operatorOf(t, l)

	erased, left, err := console.Erase(t.Context(), l, "acme", "42")
	require.NoError(t, err)
	require.Equal(t, []int{3, 0}, []int{erased, left}, "and not what is kept of the user acme&42")

	kept("acme", "43", 2)
	page := o.page("answers=1&q=" + url.QueryEscape("acme&43"))
	require.Contains(t, page, "POST /orders of acme&amp;43")
	require.Contains(t, page, "Erase what is kept of <code>acme&amp;43</code>")
	w := o.ask(http.MethodPost, "", o.eraseForm("acme&43", "acme&43"), browserAccept)
	require.Contains(t, w.Body.String(), "2 stored answers erased.")

	kept("acme", "44", 2)
	w = o.ask(http.MethodDelete, "label=acme&label=44", "", "application/json")
	require.JSONEq(t, `{"label": "acme&44", "erased": 2, "left": 0}`, w.Body.String())

	out.Reset()
	erased, left, err = console.Erase(t.Context(), l, "acme", "42")
	require.NoError(t, err)
	require.Equal(t, []int{0, 0}, []int{erased, left})
	require.Contains(t, out.String(), `"level":"WARN","msg":"httplatch: no stored answers have this label"`)
	require.Contains(t, out.String(), "each part of a joined scope is an argument of its own")
	require.NotContains(t, out.String(), "acme")
	require.Len(t, o.list("answers=1&q=acme").Entries, 1)
}

// eraseForm is the form on the page that lists the stored answers of label.
func (o operator) eraseForm(label, confirm string) string {
	o.t.Helper()
	return o.filled("answers=1&q="+url.QueryEscape(label), confirm, 2)
}

// An erasure that ends early says so, and what it has done.
func TestEraseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := console.Erase(ctx, guardtest.NewLocker(t, memstore.New()), "42")
	require.ErrorIs(t, err, context.Canceled)
}

// TestErasureWithoutALabel, as of a user without an ID, must not remove the answers of all requests without one.
func TestErasureWithoutALabel(t *testing.T) {
	t.Parallel()
	l := guardtest.NewLocker(t, memstore.New())
	keyed(t, l, "jane", "k", guardtest.Created, latch.WithLabel(func(*http.Request) string { return "" }))
	erased, _, err := console.Erase(t.Context(), l, "")
	require.Zero(t, erased)
	require.Error(t, err)
}

// While the store is silent, a clean-up can be found by the user of its request, without the record that names the user.
func TestCleanUpsAreNamedWhileTheStoreIsSilent(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		away := &guardtest.MortalStore{Store: memstore.New()}
		l := guardtest.NewLocker(t, away)
		o := operatorOf(t, l)
		running := make(chan struct{})
		go keyed(t, l, "jane", "held", func(http.ResponseWriter, *http.Request) { <-running }, latch.WithName("orders"))
		synctest.Wait()
		away.Dead.Store(true)
		require.Equal(t, http.StatusCreated, keyed(t, l, "jane", "pending", guardtest.Created, latch.WithName("orders")).Code)

		for query, found := range map[string]bool{"": true, "q=jane": true, "q=JANE": true, "q=orders": true, "q=joe": false} {
			page := o.page(query)
			require.Equal(t, found, strings.Contains(page, "</a> POST /orders of jane: the receipt got no answer"), query)
			require.Equal(t, found, strings.Contains(page, "</a> POST /orders of jane: running for "), query)
		}
		away.Dead.Store(false)
		close(running)
		synctest.Wait()
	})
}

// The page of requests that were begun and not finished has their steps, and no results. The list of entries has steps
// only if it is asked for answers. An erasure leaves the steps of a request whose outcome is unknown: its next attempt
// needs them.
func TestUnfinishedRequests(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	steps := func(dies func(), status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			must.Get(latch.Step(r.Context(), "charge <b>", func(context.Context) (string, error) { return "secret", nil }))(t)
			_, err := latch.Step(r.Context(), "courier", func(context.Context) (string, error) { return "", errors.New("no answer") })
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
	for name, receipt := range map[string][]byte{key: []byte(record.Unknown), keytext.Step(key, "charge"): []byte("\x01\x01charged")} {
		c := lock.Claim{Token: name, Owner: string(about.AppendTo([]byte("shop-7f:4711"))), Lease: time.Minute}
		put(t, memory, name, c)
		must.Yes(t)(memory.Settle(t.Context(), name, c, receipt, time.Hour))
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
