package snippets_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// wrapping is a row of docs/evidence/writers.md: a writer, and where it is mounted.
type wrapping struct {
	framework, writer, where string
	so                       string // what the reader does about it
	wire                     func(guard func(http.Handler) http.Handler, o *orders) http.Handler
}

// orders is the handler of a row. It answers 201 with a text that is worth compressing, except that
// the first of those that fail fails.
type orders struct {
	fails bool
	runs  int
}

func (o *orders) failing() bool {
	o.runs++
	return o.fails && o.runs == 1
}

const orderType = "text/plain; charset=utf-8"

func (o *orders) text() string {
	return fmt.Sprintf("order %d, %s", o.runs, strings.Repeat("and tea ", 1000))
}

func (o *orders) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if o.failing() {
		http.Error(w, "away", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Location", fmt.Sprintf("/orders/%d", o.runs))
	w.Header().Set("Content-Type", orderType)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, o.text())
}

// sight is the answer as a client got it.
type sight struct {
	status int
	header http.Header
	coding string
	text   string
}

func (s sight) replayed() bool { return s.header.Get("Idempotent-Replayed") == "true" }

// try sends a request with a key to a server, as a client that can take gzip or cannot.
func try(t *testing.T, server *httptest.Server, coding string) sight {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders", strings.NewReader(`{"sku":"tea"}`)))(t)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept-Encoding", coding)
	r.Header.Set("X-User-ID", "42")
	r.Header.Set("Idempotency-Key", "8e03978e")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	res, err := server.Client().Do(r)
	require.NoError(t, err)
	body := must.Get(io.ReadAll(res.Body))(t)
	require.NoError(t, res.Body.Close())
	s := sight{res.StatusCode, res.Header, res.Header.Get("Content-Encoding"), string(body)}
	if s.coding == "gzip" {
		text := must.Get(io.ReadAll(must.Get(gzip.NewReader(bytes.NewReader(body)))(t)))(t)
		s.text = string(text)
	}
	for _, name := range []string{"Date", "Content-Length"} {
		s.header.Del(name)
	}
	if s.header.Get("Set-Cookie") != "" {
		s.header.Set("Set-Cookie", "another one each time")
	}
	return s
}

func (r *wrapping) serve(t *testing.T, o *orders, log io.Writer, guarded bool) *httptest.Server {
	t.Helper()
	guard := func(next http.Handler) http.Handler { return next }
	if guarded {
		l := lock.New(memstore.New(), lock.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		guard = latch.Idempotent(l, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)
	}
	server := httptest.NewServer(r.wire(guard, o))
	t.Cleanup(server.Close)
	return server
}

func (r *wrapping) line(t *testing.T) string {
	t.Helper()
	var log bytes.Buffer
	begin := func(fails bool) (*orders, *httptest.Server, sight) {
		o := &orders{fails: fails}
		bare, server := try(t, r.serve(t, &orders{fails: fails}, nil, false), "gzip"), r.serve(t, o, &log, true)
		first := try(t, server, "gzip")
		require.Equal(t, bare, first, "the guard changes nothing for the first client")
		return o, server, first
	}
	o, server, first := begin(false)
	again := try(t, server, "gzip")
	repeat := r.repeat(first, again)
	if plain := try(t, server, "identity"); plain.coding != "" {
		repeat += ", " + plain.coding + " to every client"
	} else if again.replayed() {
		require.Equal(t, again.text, plain.text)
	}
	if o.runs != 1 {
		repeat += fmt.Sprintf(", **and runs: %d orders**", o.runs)
	}

	o, server, failed := begin(true)
	retry := try(t, server, "gzip")
	after := r.repeat(failed, retry)
	if o.runs == 2 && retry.status == http.StatusCreated && !retry.replayed() {
		after = "runs"
	}
	seen := "–"
	if strings.Contains(log.String(), "a handler returned without an answer") {
		seen = "logged"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |\n", r.writer, r.where,
		got(first), repeat, fmt.Sprintf("`%d`, then %s", failed.status, after), seen, cmp.Or(r.so, "–"))
}

func (r *wrapping) repeat(first, again sight) string {
	if !again.replayed() {
		return got(again)
	}
	header := again.header.Clone()
	header.Del("Idempotent-Replayed")
	cookie := ""
	if first.header.Get("Set-Cookie") != "" && header.Get("Set-Cookie") == "" {
		cookie = " without the cookie"
	}
	was := first.header.Clone()
	was.Del("Set-Cookie")
	header.Del("Set-Cookie")
	switch {
	case first.status != again.status || first.text != again.text:
		return fmt.Sprintf("**`%d`, %d bytes, replayed**", again.status, len(again.text))
	case !maps.EqualFunc(was, header, func(a, b []string) bool { return strings.Join(a, ",") == strings.Join(b, ",") }):
		return fmt.Sprintf("replayed, with other headers: %v, %v", was, header)
	}
	return "replayed" + cookie
}

func got(s sight) string {
	text := fmt.Sprintf("`%d`", s.status)
	if kind := s.header.Get("Content-Type"); kind == "application/problem+json" {
		_, name, _ := strings.Cut(s.text, "docs/problems.md#")
		name, _, _ = strings.Cut(name, `"`)
		return fmt.Sprintf("%s [%s](problems.md#%s)", text, name, name)
	}
	if s.coding != "" {
		text += ", " + s.coding
	}
	if s.header.Get("Set-Cookie") != "" {
		text += ", a cookie"
	}
	return text
}

const writersPage = "Written by `GOWORK=$PWD/all.work go test ./docs/snippets -run TestWriters -update`, which also executes every row:" + `

# Writers around and inside a guard

Middleware that wraps the ResponseWriter, or answers for handlers, next to ` + "`Idempotent`" + `, which gin and echo mount by their module. The rules are in
[routers](../routers.md).

- The handler answers ` + "`201`" + ` with a text of 8 KB. *The first* is a client that takes gzip; it gets each byte that it would get without the
  guard. *replayed* is that answer again.
- *After a failure*: the first run fails as its framework has it (` + "`http.Error`, `c.Error`" + `, a returned error). *runs* is the second run, with success.
- *seen*: the guard sees that the answer passes it, or may. It logs that once, and refuses repeats.
`

// TestWriters executes the rows, and holds the page to what came of them.
func TestWriters(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(writersPage)
	framework := ""
	for _, r := range wrappings() {
		if r.framework != framework {
			framework = r.framework
			fmt.Fprintf(&b, "\n## %s\n\n| writer | mounted | the first gets | its repeat gets | after a failure | seen | so |\n|---|---|---|---|---|---|---|\n", framework)
		}
		t.Run(framework+"/"+r.writer+"/"+r.where, func(t *testing.T) { b.WriteString(r.line(t)) }) //nolint:paralleltest // the rows are in order
	}
	requirePage(t, "writers.md", b.String())
}
