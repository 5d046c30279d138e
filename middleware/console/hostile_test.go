package console_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"iter"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/console"
)

// hostile has names that others may choose.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`' onmouseover='alert(1)`,
	"` onfocus=alert(1) autofocus x=`",
	`javascript:alert(1)`,
	`</title><svg/onload=alert(1)>`,
	`</textarea><style>*{display:none}</style>`,
	`{{.Token}}{{template "top" .}}`,
	`&lt;script&gt;`, `&#60;b&#62;`, `--><b>`, `]]>`, `<!--`,
	"?key=x&token=y#z", "%3Cscript%3E", `\u003cscript\u003e`,
	"\x00\x01\x1b[31m\x7f\u0085", "\r\nX-Injected: 1\r\n\r\n", "\u202e\u2066txt.exe", "\u200b\ufeff\u00ad", "\xff\xfe\xc0\xaf",
	"+ADw-script+AD4-", "\u2028\u2029", strings.Repeat("W", 500), "a b", "é", "用户",
}

type userKey struct{}

// Whatever keys, users and owners are called, all pages are valid, in which requireValid and the operator's headers leave
// no room for a script, and what they are called can be read on them.
func TestIsNotAScript(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	l := guardtest.NewLocker(t, store)
	guard := latch.Lock(l, "user", keyfunc.Context(func(ctx context.Context) string {
		name, _ := ctx.Value(userKey{}).(string)
		return name
	}))
	o := operatorOf(t, l)
	for _, name := range hostile {
		require.NoError(t, l.Do(t.Context(), lock.Key("busy", name), func(context.Context) error {
			put(t, store, "user="+name, lock.Claim{Token: "t", Owner: name + ":" + name, Lease: time.Hour})
			for _, query := range []string{"", "q=" + url.QueryEscape(name), "answers=1&limit=200"} {
				require.NotContains(t, o.page(query), "\u202e")
				o.list(query)
			}
			entry := o.page("key=" + url.QueryEscape("user="+name))
			require.NotContains(t, strings.ToLower(entry), "<script")
			if !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
				require.Contains(t, html.UnescapeString(entry), "user="+name)
			}
			require.Equal(t, "t", o.entry("user="+name).Token)
			require.Equal(t, http.StatusUnprocessableEntity, o.ask(http.MethodPost, "", o.form("user="+name, name+"?"), browserAccept).Code)
			return nil
		}))
		r := guardtest.Post("")
		guardtest.Serve(guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			o.page("q=user") // where the name looks like a real user
		})), r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	}
	for _, e := range o.list("limit=200").Entries {
		require.Equal(t, "/", (&url.URL{Path: "/"}).ResolveReference(must.Get(url.Parse(e.Link))(t)).Path, "links stay on the console")
	}

	// And the check would find it: this is the page without an escape.
	page := o.page("key=" + url.QueryEscape("user="+hostile[0]))
	raw := strings.ReplaceAll(page, html.EscapeString(hostile[0]), hostile[0])
	require.NotEqual(t, page, raw)
	require.NotEmpty(t, faults(raw))
}

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

const exposedWarning = "Everybody may be able to open this page."

// A console that every client can reach says so: once in the log, and on each page.
func TestWarnsOfAnOpenMount(t *testing.T) {
	for what, tt := range map[string]struct {
		remote string
		header []string
		tls    *tls.ConnectionState
		warned bool
	}{
		"another machine":                      {remote: "203.0.113.9:1", warned: true},
		"TLS without a client's certificate":   {remote: "203.0.113.9:1", tls: &tls.ConnectionState{}, warned: true},
		"an empty credential":                  {remote: "203.0.113.9:1", header: []string{"Authorization", ""}, warned: true},
		"passed on by a proxy on this machine": {remote: "127.0.0.1:1", header: []string{"X-Forwarded-For", "203.0.113.9"}, warned: true},
		"no address at all":                    {remote: "pipe", warned: true},
		"this machine, IPv6":                   {remote: "[::1]:1"},
		"a Unix socket":                        {remote: "@"},
		"basic or bearer":                      {remote: "203.0.113.9:1", header: []string{"Authorization", "Basic b3A6eA=="}},
		"a session":                            {remote: "203.0.113.9:1", header: []string{"Cookie", "session=1"}},
		"an authenticating proxy":              {remote: "203.0.113.9:1", header: []string{"X-Forwarded-User", "ann"}},
		"a client's certificate":               {remote: "203.0.113.9:1", tls: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}},
	} {
		t.Run(what, func(t *testing.T) {
			var out bytes.Buffer
			logger := lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil)))

			page := console.New(guardtest.NewLocker(t, memstore.New(), logger))
			for range 3 {
				r := httptest.NewRequest(http.MethodGet, "/console", nil)
				r.RemoteAddr, r.TLS = tt.remote, tt.tls
				r.Header.Set("Accept", "text/html")
				for i := 0; i < len(tt.header); i += 2 {
					r.Header.Set(tt.header[i], tt.header[i+1])
				}
				w := guardtest.Serve(page, r)
				require.Equal(t, http.StatusOK, w.Code)
				require.Equal(t, tt.warned, strings.Contains(w.Body.String(), exposedWarning))
				requireValid(t, w.Body.String())
			}
			if !tt.warned {
				require.Empty(t, out.String())
				return
			}
			var logged map[string]any
			require.NoError(t, json.Unmarshal(out.Bytes(), &logged), "one line: %s", out.String())
			require.Equal(t, "ERROR", logged["level"])
			require.Contains(t, logged["msg"], "mount it behind your authentication")
			require.Equal(t, tt.remote, logged["remote"])
		})
	}
}
