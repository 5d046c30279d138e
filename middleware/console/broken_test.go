package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/console"
)

// What the console itself cannot write is a 500.
func TestAnswerThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for accept, tt := range map[string]struct {
		page string
		data any
	}{
		"application/json": {"entry", make(chan int)},
		browserAccept:      {"entry", 7},
		"text/html":        {"no such page", nil},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		console.Send(w, r, tt.page, tt.data)
		require.Equal(t, http.StatusInternalServerError, w.Code, accept)
		require.Contains(t, w.Body.String(), "The console could not write its answer.")
		require.Equal(t, accept == "application/json", json.Valid(w.Body.Bytes()))
	}
}

// brokenStore has entries that no store would have, or an error.
type brokenStore struct {
	lock.Store
	entries []lock.Entry
	err     error
}

func (s brokenStore) Get(context.Context, string) (lock.Entry, error) {
	if len(s.entries) == 0 {
		return lock.Entry{}, s.err
	}
	return s.entries[0], s.err
}

func (s brokenStore) Forget(context.Context, string, string) (bool, error) { return false, s.err }

func (s brokenStore) Release(context.Context, string, lock.Claim) (bool, error) { return false, s.err }

func (brokenStore) Page(context.Context, string, int, func(string) bool) ([]lock.Entry, string, error) {
	return nil, "", errors.ErrUnsupported
}

func (s brokenStore) List(context.Context) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for _, e := range s.entries {
			if !yield(e, s.err) {
				return
			}
		}
		yield(lock.Entry{}, s.err)
	}
}

// For any request and any store reply, the console answers without a panic.
func TestAnswersWhatIsBroken(t *testing.T) {
	t.Parallel()
	broken := []lock.Entry{
		{},
		{Key: "once:", State: lock.Settled},
		{Key: "once:x", State: lock.Settled, Receipt: []byte{0xff, 0, 0x80}, Left: math.MinInt64},
		{Key: "\xff=\x00", State: lock.State(255), Token: "\xff", Owner: ":", Left: math.MaxInt64},
		{Key: "=", State: lock.Held, Token: "t", Owner: strings.Repeat("\xff", 300), Attempt: math.MinInt, Fence: math.MinInt64},
		{Key: "a=b", State: lock.Abandoned, Fingerprint: []byte{}, Receipt: []byte("{}")},
		{State: lock.Held, Token: "t"},
	}
	stores := map[string]lock.Store{
		"an outage":       brokenStore{err: lock.ErrUnavailable},
		"a sealed one":    brokenStore{err: errors.ErrUnsupported},
		"errors and more": brokenStore{entries: broken, err: errors.ErrUnsupported},
		"all of it":       brokenStore{entries: broken},
	}
	for i, e := range broken {
		stores[fmt.Sprint("entry ", i)] = brokenStore{entries: []lock.Entry{e}}
	}
	texts := append([]string{"", "=", "once:", "%", "\x00", strings.Repeat("x", keytext.MaxBytes+1), "-1", "1e99", "99999999999999999999"}, hostile...)
	for name, store := range stores {
		h := console.New(guardtest.NewLocker(t, store, lock.WithLogger(guardtest.Quiet)))
		ask := func(r *http.Request) {
			for _, accept := range []string{"", "text/html"} {
				r.Header.Set("Accept", accept)
				w := httptest.NewRecorder()
				require.NotPanics(t, func() { h.ServeHTTP(w, r) }, "%s: %s %s", name, r.Method, r.URL)
				require.NotEqual(t, http.StatusInternalServerError, w.Code, "%s: %s %s", name, r.Method, r.URL)
			}
		}
		for _, text := range texts {
			q := url.QueryEscape(text)
			for _, query := range []string{
				q, "%zz=" + q, ";", "q=" + q, "limit=" + q, "after=" + q, "q=a&answers=" + q + "&after=" + q + "&limit=" + q, "key=" + q, "style=" + q,
				"id=k&path=" + q, "id=" + q + "&path=/&method=" + q + "&scope=" + q,
			} {
				ask(get(query))
			}
			for _, method := range []string{http.MethodDelete, http.MethodPut, http.MethodOptions, "", "\x00"} {
				r := get("key=" + q + "&token=" + q)
				r.Method = method
				ask(r)
			}
			for _, media := range []string{"application/x-www-form-urlencoded", "multipart/form-data", "text/plain", ";;", ""} {
				for _, body := range []string{text, "key=" + q + "&token=" + q + "&confirm=" + q, "key=YQ&token=YQ&confirm=" + q, "key=YT1i&token=dA&confirm=b", "%zz"} {
					r := get("")
					r.Method = http.MethodPost
					r.Header.Set("Content-Type", media)
					r.Body = io.NopCloser(strings.NewReader(body))
					ask(r)
				}
			}
		}
		r := get("")
		r.Method, r.Body = http.MethodPost, io.NopCloser(iotest.ErrReader(errors.New("broken off")))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		ask(r)
	}
}

func get(query string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/admin/locks", http.NoBody)
	r.URL.RawQuery = query
	r.RemoteAddr = "127.0.0.1:4711"
	return r
}
