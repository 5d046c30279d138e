package console_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/console"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// operator asks a console, as a browser and as a script.
type operator struct {
	t testing.TB
	h http.Handler
}

func operatorOf(tb testing.TB, l *lock.Locker) operator {
	tb.Helper()
	return operator{tb, console.New(l)}
}

func (o operator) ask(method, query, body, accept string, header ...string) *httptest.ResponseRecorder {
	o.t.Helper()
	r := httptest.NewRequest(method, "http://desk.example/admin/locks?"+query, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:4711"
	r.Header.Set("Accept", accept)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := guardtest.Serve(o.h, r)
	h := w.Header()
	require.Equal(o.t, "nosniff", h.Get("X-Content-Type-Options"))
	require.Contains(o.t, h.Get("Content-Security-Policy"), "default-src 'none'")
	require.Contains(o.t, h.Get("Content-Security-Policy"), "frame-ancestors 'none'")
	require.NotContains(o.t, h.Get("Content-Security-Policy"), "unsafe")
	require.NotContains(o.t, h.Get("Content-Security-Policy"), "script-src")
	require.Empty(o.t, h.Values("Set-Cookie"))
	if strings.HasPrefix(h.Get("Content-Type"), "text/html") {
		require.Equal(o.t, "no-store", h.Get("Cache-Control"))
		require.Contains(o.t, h.Get("Vary"), "Accept")
		requireValid(o.t, w.Body.String())
	}
	return w
}

const browserAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// page returns the page that a browser gets.
func (o operator) page(query string) string {
	o.t.Helper()
	w := o.ask(http.MethodGet, query, "", browserAccept)
	require.Equal(o.t, http.StatusOK, w.Code, w.Body)
	require.Equal(o.t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	return w.Body.String()
}

// entry and list are answers to a script.
type entry struct {
	Key, Situation, Summary, Freeing, Token, Link, State, Owner string
	LeftMS                                                      int64 `json:"left_ms"`
	Here                                                        *struct {
		Key     string
		Waiting int
	}
	Request *struct {
		Guard, Method, Path, Label string
		Began                      time.Time
	}
}

type list struct {
	Entries []entry
	Next    string
	Trouble string
	Process struct {
		Holds      []struct{ Key, Entry string }
		Cleanups   []struct{ Key, Kind string }
		Backlog    int
		Recoveries []struct{ Key, Kind string }
	}
}

func (o operator) list(query string) (l list) {
	o.t.Helper()
	w := o.ask(http.MethodGet, query, "", "application/json")
	require.Equal(o.t, http.StatusOK, w.Code, w.Body)
	require.Equal(o.t, "application/json", w.Header().Get("Content-Type"))
	require.NoError(o.t, json.Unmarshal(w.Body.Bytes(), &l))
	return l
}

func (o operator) entry(key string) (e entry) {
	o.t.Helper()
	w := o.ask(http.MethodGet, "key="+url.QueryEscape(key), "", "application/json")
	require.Equal(o.t, http.StatusOK, w.Code, w.Body)
	require.NoError(o.t, json.Unmarshal(w.Body.Bytes(), &e))
	return e
}

// put leaves an entry as another process would.
func put(tb testing.TB, s lock.Store, key string, c lock.Claim) {
	tb.Helper()
	if c.Token == "" {
		c.Token = "token of " + key
	}
	require.Equal(tb, c.Token, must.Get(s.Claim(tb.Context(), key, c))(tb).Token)
}

func settleAs(t *testing.T, s lock.Store, key, token string, receipt []byte, keep time.Duration) {
	t.Helper()
	must.Yes(t)(s.Settle(t.Context(), key, lock.Claim{Token: token}, receipt, keep))
}

// Why can't user 42 order? What each answer says, in words and for scripts.
func TestExplains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		l := guardtest.NewLocker(t, store, lock.WithLogger(guardtest.Quiet))
		o := operatorOf(t, l)

		lease := must.Get(l.Acquire(t.Context(), "user=here"))(t)
		put(t, store, "user=there", lock.Claim{Owner: "web-3:4711", Lease: 30 * time.Second})
		// As lock.WithOrigin has it.
		put(t, store, "user=traced", lock.Claim{Owner: "web-3:4711 2026-11-21T21:49:58.292Z", Lease: 30 * time.Second})
		put(t, store, "once:runs", lock.Claim{Owner: "web-3:4711", Lease: 30 * time.Second, Linger: time.Hour})
		put(t, store, "once:gone", lock.Claim{Owner: "web-3:4711", Lease: time.Second, Linger: 24 * time.Hour})
		put(t, store, "user=cool", lock.Claim{Token: "c", Lease: 30 * time.Second})
		settleAs(t, store, "user=cool", "c", nil, 15*time.Second)
		put(t, store, "once:done", lock.Claim{Token: "d", Lease: 30 * time.Second})
		settleAs(t, store, "once:done", "d", []byte("a receipt of a worker"), 24*time.Hour)
		put(t, store, "once:sent", lock.Claim{Token: "s", Lease: 30 * time.Second, Owner: "web-3:4711"})
		settleAs(t, store, "once:sent", "s", []byte(record.Unknown), 24*time.Hour)
		time.Sleep(12 * time.Second)

		for key, want := range map[string]struct {
			situation string
			says      []string
		}{
			"user=here":   {"held", []string{"Running for 12 s, in this process (", "which renews it until the work ends. If the process dies now, free within 28 s."}},
			"user=there":  {"held", []string{"Running, in process 4711 on host web-3, which renews it until the work ends. If that process is gone, free within 18 s.", "Other requests for user=there are refused"}},
			"user=traced": {"held", []string{"process 4711 on host web-3"}},
			"once:runs":   {"running", []string{"process 4711 on host web-3, which renews", "If that process is gone, within 18 s its outcome is unknown, or it is free (work in a transaction).", "Repeats of this request are refused, or wait"}},
			"once:gone":   {"outcome-unknown", []string{"Outcome unknown", "process 4711 on host web-3, whose lease is over", "Repeats are refused for another 24 h"}},
			"user=cool":   {"cool-down", []string{"In a cool-down for another 3 s"}},
			"once:done":   {"stored-answer", []string{"A stored answer", "another 24 h"}},
			"once:sent":   {"outcome-unknown", []string{"Outcome unknown", "process 4711 on host web-3, which got no answer", "Repeats are refused for another 24 h. Find out"}},
		} {
			e := o.entry(key)
			require.Equal(t, want.situation, e.Situation, key)
			require.NotEmpty(t, e.Freeing, key)
			page := o.page("key=" + url.QueryEscape(key))
			for _, text := range want.says {
				require.Contains(t, e.Summary, text, key)
				require.Contains(t, page, text, key)
			}
		}
		require.Equal(t, "user=here", o.entry("user=here").Here.Key)
		require.Nil(t, o.entry("user=there").Here)

		l2 := o.list("")
		require.Len(t, l2.Entries, 6, "a stored answer keeps no request waiting")
		require.Len(t, l2.Process.Holds, 1)
		require.Len(t, o.list("answers=1").Entries, 8)
		found := o.list("q=once:sent")
		require.Len(t, found.Entries, 1, "it is no answer to those who look for it")
		require.Equal(t, "outcome-unknown", found.Entries[0].Situation)
		page := o.page("answers=1")
		for _, label := range []string{"Held", "Running", "Outcome unknown", "Cool-down", "Stored answer", "3 s left"} {
			require.Contains(t, page, label)
		}

		require.NoError(t, lease.Release(t.Context()))
		require.Contains(t, o.page("q=user%3Dhere"), "<code>user=here</code> is free.")
		require.Contains(t, o.page("key=user%3Dhere"), "This key is free.")
		require.Equal(t, http.StatusNotFound, o.ask(http.MethodGet, "key=user%3Dhere", "", "*/*").Code)
	})
}

// What the store did not answer is shown, and what was recovered.
func TestShowsCleanupsAndRecoveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		store := &guardtest.StubStore{Store: latchtest.LoseRequest(memory, latchtest.Release, 1)} // the first removal
		store.OnClaim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
			_, _ = memory.Claim(ctx, key, c)
			<-ctx.Done()
			return lock.Entry{}, ctx.Err()
		}
		l := guardtest.NewLocker(t, store, lock.WithLogger(guardtest.Quiet))
		o := operatorOf(t, l)
		_, err := l.Acquire(t.Context(), "user=42")
		require.ErrorIs(t, err, lock.ErrUnknown)
		got := o.list("")
		require.Contains(t, got.Trouble, "cannot list", "the stub is no Inspector")
		require.Equal(t, 1, got.Process.Backlog)
		require.Len(t, got.Process.Cleanups, 1)
		require.Equal(t, "user=42", got.Process.Cleanups[0].Key)
		require.Contains(t, o.page(""), "its claim got no answer, or its lease was lost; what may be left is being removed")
		require.Equal(t, "unanswered", o.entry("user=42").Situation, "it has no holder, and is not called held")
		require.Contains(t, o.page("key=user%3D42"), "No work runs under this.")

		put(t, memory, "user=43", lock.Claim{Token: "x", Owner: "web-3:1", Lease: time.Hour})
		require.Equal(t, "held", o.list("q=user%3D43").Entries[0].Situation, "a whole key is found without a list")
		require.Empty(t, o.list("q=user").Entries)

		time.Sleep(time.Second)
		got = o.list("")
		require.Equal(t, "reaped", got.Process.Recoveries[0].Kind)
		require.Contains(t, o.page(""), "was found and removed, ")
		require.Empty(t, o.list("q=43").Process.Recoveries)
		time.Sleep(5 * time.Minute)
		require.Zero(t, o.list("").Process.Backlog)
	})
}

// A process that has an answer which the store lacks says so, also after its lease: no operator decides what it knows.
func TestShowsAnAnswerThatTheStoreLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := latchtest.LoseRequest(latchtest.LoseRequest(memstore.New(), latchtest.Settle, 1000), latchtest.Renew, 1000)
		l := guardtest.NewLocker(t, store, lock.WithLogger(guardtest.Quiet))
		o := operatorOf(t, l)
		h := latch.Idempotent(l, guardtest.ByUser, keyfunc.IdempotencyKey)(http.HandlerFunc(guardtest.Created))
		r := guardtest.Post("42")
		r.Header.Set("Idempotency-Key", "8e03978e")
		require.Equal(t, http.StatusCreated, guardtest.Serve(h, r).Code)
		for range 2 {
			found := o.list("q=42").Entries
			require.Len(t, found, 1)
			require.Equal(t, "unanswered", found[0].Situation)
			require.Contains(t, found[0].Summary, "POST /orders of 42: over in this process")
			time.Sleep(time.Minute)
		}
		require.Equal(t, "outcome-unknown", operatorOf(t, guardtest.NewLocker(t, store)).list("q=42").Entries[0].Situation, "the twin: another process")
		time.Sleep(12 * time.Hour)
		require.Equal(t, "stored-answer", o.list("q=42&answers=1").Entries[0].Situation)
	})
}

// The record of a request is found by what its client sent.
func TestFindsRequests(t *testing.T) {
	t.Parallel()
	l := guardtest.NewLocker(t, memstore.New())
	h := latch.Idempotent(l, guardtest.ByUser, keyfunc.IdempotencyKey)(http.HandlerFunc(guardtest.Created))
	r := guardtest.Post("42")
	r.Header.Set("Idempotency-Key", "8e03978e")
	require.Equal(t, http.StatusCreated, guardtest.Serve(h, r).Code)
	o := operatorOf(t, l)
	page := o.page("scope=42&method=post&path=/orders&id=8e03978e")
	require.Contains(t, page, "A stored answer to POST /orders of 42, of status 201 and 0 bytes")
	require.Contains(t, o.page("scope=43&method=POST&path=/orders&id=8e03978e"), "This key is free.")
	require.Equal(t, http.StatusBadRequest, o.ask(http.MethodGet, "id=8e&path=orders", "", browserAccept).Code)

	_, _, err := l.Once(t.Context(), "job=7", nil, func(context.Context) ([]byte, error) { return []byte("x"), nil })
	require.NoError(t, err)
	require.Len(t, o.list("q=job%3D7&answers=1").Entries, 1, "what a program called it is found too")
	lease := must.Get(l.Acquire(t.Context(), lock.Key("user", "a&b=c")))(t)
	require.Len(t, o.list("q="+url.QueryEscape("user=a&b=c")).Entries, 1, "as it was before it was composed")
	require.Len(t, o.list("q="+url.QueryEscape("&B")).Entries, 1)
	require.NoError(t, lease.Release(t.Context()))
}

func TestMethodsAndMistakes(t *testing.T) {
	t.Parallel()
	o := operatorOf(t, guardtest.NewLocker(t, memstore.New()))
	for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodOptions, "PURGE"} {
		w := o.ask(method, "", "", browserAccept)
		require.Equal(t, http.StatusMethodNotAllowed, w.Code)
		require.Equal(t, "GET, HEAD, POST, DELETE", w.Header().Get("Allow"))
	}
	require.Equal(t, http.StatusOK, o.ask(http.MethodHead, "", "", "").Code)
	long := strings.Repeat("x", keytext.MaxBytes+1)
	for _, accept := range []string{browserAccept, "application/json"} {
		require.Equal(t, http.StatusBadRequest, o.ask(http.MethodGet, "q="+long, "", accept).Code)
		require.Equal(t, http.StatusBadRequest, o.ask(http.MethodGet, "key="+long, "", accept).Code)
		require.Equal(t, http.StatusBadRequest, o.ask(http.MethodDelete, "key=a", "", accept).Code)
		require.Equal(t, http.StatusBadRequest, o.ask(http.MethodDelete, "token=a", "", accept).Code)
		require.Equal(t, http.StatusBadRequest, o.ask(http.MethodPost, "", "key=!&token=a&confirm=a", accept).Code)
		require.Equal(t, http.StatusBadRequest, o.ask(http.MethodPost, "", "key="+strings.Repeat("x", 1<<20), accept).Code)
		require.Equal(t, http.StatusUnsupportedMediaType, o.ask(http.MethodPost, "", "{}", accept, "Content-Type", "text/plain").Code)
	}
	w := o.ask(http.MethodGet, "style=x", "", "text/css")
	require.Equal(t, "text/css; charset=utf-8", w.Header().Get("Content-Type"))
	require.Contains(t, w.Body.String(), "light-dark(")
	require.PanicsWithValue(t, "console.New: nil *lock.Locker", func() { console.New(nil) })
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }
