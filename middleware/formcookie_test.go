package middleware_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// The cookie of the key "k", as package form's script names it: FNV-1a of one character, from 0.
var cookieOfK = fmt.Sprintf("latch-%d", uint32('k')*16777619)

// byScript is a form that the script has sent.
func byScript(body string) *http.Request {
	r := submission(body)
	r.Header.Set("Cookie", "session=s; "+cookieOfK+"=0")
	return r
}

// TestFinalAnswerToAFormIsReported to the script of package form, which has set the cookie of
// the key; the first time and with each replay, however the answer leaves. Nothing else is: the
// script would end a key that may be under way.
func TestFinalAnswerToAFormIsReported(t *testing.T) {
	t.Parallel()
	report := cookieOfK + "=1; Path=/; Max-Age=86400; SameSite=Lax"
	redirect := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://pay.example/", http.StatusSeeOther)
	}
	long := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("a", 100)) }
	own := func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "own", Value: "1"})
		redirect(w, r)
	}
	fails := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	mistake := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnprocessableEntity) }
	late := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusSeeOther)
		w.Header().Set("X-Late", "1")
	}
	below400 := latch.WithFinal(func(status int) bool { return status < 400 })
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		opts    []latch.IdempotentOption
		change  func(r *http.Request)
		first   []string // cookies of the first answer
		repeat  []string
	}{
		"redirect":               {handler: redirect, first: []string{report}, repeat: []string{report}},
		"cookies of the handler": {handler: own, first: []string{"own=1", report}, repeat: []string{report}},
		"headers set too late":   {handler: late, first: []string{report}, repeat: []string{report}},
		"not kept":               {handler: long, opts: []latch.IdempotentOption{latch.WithBodyLimits(1<<20, 10)}, first: []string{report}, repeat: []string{report}},
		"over TLS": {
			handler: redirect, change: func(r *http.Request) { r.TLS = &tls.ConnectionState{} },
			first: []string{cookieOfK + "=1; Path=/; Max-Age=86400; Secure; SameSite=Lax"}, repeat: []string{cookieOfK + "=1; Path=/; Max-Age=86400; Secure; SameSite=Lax"},
		},
		"a mistake that is final":     {handler: mistake, first: []string{report}, repeat: []string{report}},
		"a mistake to be corrected":   {handler: mistake, opts: []latch.IdempotentOption{below400}},
		"a failure":                   {handler: fails},
		"no script":                   {handler: redirect, change: func(r *http.Request) { r.Header.Del("Cookie") }},
		"the cookie of another key":   {handler: redirect, change: func(r *http.Request) { r.Header.Set("Cookie", "latch-5=0") }},
		"a key that is not the field": {handler: redirect, change: func(r *http.Request) { r.Header.Set("Cookie", strings.Replace(cookieOfK, "latch", "patch", 1)+"=0") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := byField(newLocker(t, memstore.New()), tt.opts...)(tt.handler)
			for n, want := range [][]string{tt.first, tt.repeat} {
				r := byScript("once=k&sku=a")
				if tt.change != nil {
					tt.change(r)
				}
				require.Equal(t, want, serve(h, r).Header()["Set-Cookie"], "attempt %d", n)
			}
		})
	}
}

// TestRefusalIsReportedIfItIsFinal: a refusal after which the key cannot be used again is reported.
func TestRefusalIsReportedIfItIsFinal(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New(), lock.WithWait(0))
	entered, leave := make(chan struct{}), make(chan struct{})
	h := byField(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		w.WriteHeader(http.StatusSeeOther)
	}))
	first := make(chan http.Header)
	go func() { first <- serve(h, byScript("once=k&sku=a")).Header() }()
	<-entered
	require.Empty(t, serve(h, byScript("once=k&sku=a")).Header()["Set-Cookie"], "in-progress")
	reused := serve(h, byScript("once=k&sku=b"))
	require.Contains(t, reused.Body.String(), `content="key-reused"`)
	require.Len(t, reused.Header()["Set-Cookie"], 1)
	close(leave)
	require.Len(t, (<-first)["Set-Cookie"], 1)
}

// TestReportGoesByTheField: the report is for the field of the form, for any key of the guard and
// in each encoding of forms.
func TestReportGoesByTheField(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	redirect := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSeeOther) })
	for name, guard := range map[string]func(http.Handler) http.Handler{
		"hashed": latch.Idempotent(l, byUser, keyfunc.Hash(keyfunc.Form("once"))),
		"dedupe": latch.Dedupe(l, byUser, time.Minute),
	} {
		require.Len(t, serve(guard(redirect), byScript("once=k&sku=a")).Header()["Set-Cookie"], 1, name)
	}
	multipart := byScript("--b\r\nContent-Disposition: form-data; name=\"once\"\r\n\r\nk\r\n--b--\r\n")
	multipart.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	require.Len(t, serve(byField(l)(redirect), multipart).Header()["Set-Cookie"], 1)
}
