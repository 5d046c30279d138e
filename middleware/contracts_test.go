package middleware_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// seller is a server behind a guard with the options of a contract.
type seller struct {
	t    *testing.T
	down atomic.Bool // its store
	runs int
	next func(w http.ResponseWriter, r *http.Request) // answers; nil: 201 and the number of the run
	http.Handler
}

func newSeller(t *testing.T, contract latch.IdempotentOption, opts ...lock.Option) *seller {
	t.Helper()
	s := &seller{t: t}
	l := newLocker(t, flakyStore(&s.down, lock.ErrNotApplied), append(opts, lock.WithLogger(quiet), lock.WithWait(0))...)
	s.Handler = latch.Idempotent(l, byUser, keyfunc.IdempotencyKey, contract)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs++
		if s.next != nil {
			s.next(w, r)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte{byte('0' + s.runs)})
	}))
	return s
}

func (s *seller) post(key, body string, changes ...func(*http.Request)) *httptest.ResponseRecorder {
	s.t.Helper()
	r := keyedBody(key, body)
	r.URL.Path = "/checkout_sessions"
	r.Header.Set("Content-Type", "application/json")
	for _, change := range changes {
		change(r)
	}
	return serve(s, r)
}

func (s *seller) replayed(key, body string, changes ...func(*http.Request)) *httptest.ResponseRecorder {
	s.t.Helper()
	w := s.post(key, body, changes...)
	require.Equal(s.t, "true", w.Header().Get("Idempotent-Replayed"), w.Body)
	return w
}

func (s *seller) isNew(changes ...func(*http.Request)) {
	s.t.Helper()
	s.post("k", small)
	for i, change := range changes {
		require.Equal(s.t, strconv.Itoa(i+2), s.post("k", small, change).Body.String())
	}
}

// keptForADay requires that a request is replayed a second before a day is over, and is new a second after it.
func (s *seller) keptForADay() {
	s.t.Helper()
	s.post("k", small)
	time.Sleep(24*time.Hour - time.Second)
	require.Equal(s.t, "1", s.replayed("k", small).Body.String())
	time.Sleep(2 * time.Second)
	require.Equal(s.t, "2", s.post("k", "{}").Body.String())
}

// panicsAfterCommit sends a request whose handler has had its effect, and leaves no answer.
func (s *seller) panicsAfterCommit(key string) {
	s.t.Helper()
	s.next = func(_ http.ResponseWriter, r *http.Request) {
		require.NoError(s.t, lock.Commit(r.Context()))
		panic(http.ErrAbortHandler)
	}
	require.Panics(s.t, func() { s.post(key, small) })
}

func otherUser(r *http.Request) { r.Header.Set("X-User-ID", "43") }

func path(end string) func(r *http.Request) { return func(r *http.Request) { r.URL.Path += end } }

// replays requires that both bodies are one request, or two.
func (s *seller) replays(equal bool, first, second string) {
	s.t.Helper()
	runs := s.runs
	key := strings.Repeat("k", runs+1)
	require.Equal(s.t, 201, s.post(key, first).Code)
	w := s.post(key, second)
	require.Equal(s.t, runs+1, s.runs)
	if equal {
		require.Equal(s.t, "true", w.Header().Get("Idempotent-Replayed"), w.Body)
	} else {
		require.Contains(s.t, []int{409, 422}, w.Code, w.Body)
	}
}

func says(t *testing.T, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.JSONEq(t, body, w.Body.String())
}

func (s *seller) whileRunning(key, body string, f func()) {
	s.t.Helper()
	s.next = func(w http.ResponseWriter, _ *http.Request) {
		s.next = nil
		f()
		w.WriteHeader(http.StatusCreated)
	}
	require.Equal(s.t, 201, s.post(key, body).Code)
}

func (s *seller) fails(status int) {
	s.next = func(w http.ResponseWriter, _ *http.Request) {
		s.next = nil
		w.WriteHeader(status)
	}
}

func runsOnce(t *testing.T, s *seller) {
	t.Helper()
	for range 3 {
		require.Equal(t, "1", s.post("k", small).Body.String())
	}
	require.Equal(t, 1, s.runs)
}

// sentence is a sentence of a contract, and how it is held.
type sentence struct {
	section, quote string
	held           func(t *testing.T, s *seller)
}

const small = `{"items":[{"id":"item_123","quantity":1}]}`

var acpSentences = []sentence{
	{"3.1", "echo on all POST responses", func(t *testing.T, s *seller) {
		require.Equal(t, "k", s.post("k", small).Header().Get("Idempotency-Key"))
		require.Equal(t, "k", s.post("k", small).Header().Get("Idempotency-Key"), "replayed")
		require.Equal(t, "k", s.post("k", "{}").Header().Get("Idempotency-Key"), "refused")
		require.Equal(t, `"k"`, s.post(`"k"`, small).Header().Get("Idempotency-Key"), "as it was sent")
		s.fails(500)
		require.Equal(t, "l", s.post("l", small).Header().Get("Idempotency-Key"), "not kept")
		s.next = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		require.Panics(t, func() { s.post("m", small) })
	}},
	{"6.1", "opaque string", func(t *testing.T, s *seller) {
		longest := strings.Repeat("k", 255)
		require.Equal(t, 201, s.post(longest, small).Code)
		require.Equal(t, 201, s.post("8f14e45f-ceea-467f-a9d3-12b9b2d3a1e0", small).Code)
		says(t, s.post(longest+"k", small), 400, `{"type":"invalid_request","code":"key_invalid","message":"The header Idempotency-Key is over 255 bytes long; send less."}`)
	}},
	{"6.1", "scope keys to the **authenticated identity + endpoint path**", func(_ *testing.T, s *seller) {
		s.isNew(otherUser, path("/1/complete"))
	}},
	{"6.1", "the same key on different endpoints is treated independently", func(_ *testing.T, s *seller) { s.isNew(path("/1"), path("/2")) }},
	{"6.1", "**MUST** be rejected with", func(t *testing.T, s *seller) {
		says(t, s.post("", small), 400, `{"type":"invalid_request","code":"idempotency_key_required","message":"Idempotency-Key header is required on all POST requests"}`)
		says(t, s.post("k", small, func(r *http.Request) { r.Header.Del("X-User-ID") }), 400, `{"type":"invalid_request","code":"key_missing","message":"The header X-User-ID is missing."}`)
		require.Zero(t, s.runs)
	}},
	{"6.2", "semantic JSON equality of the request body only", func(_ *testing.T, s *seller) {
		s.replays(true, `{"a":1,"b":"x"}`, "{ \"b\": \"\\u0078\",\n\"a\": 1 }")
		s.replays(false, `{"a":1}`, `{"a":2}`)
		s.replays(true, "", "")
		s.replays(false, "", "{}")
		s.post("header", small)
		s.replayed("header", small, func(r *http.Request) { r.Header.Set("Accept-Language", "de") })
	}},
	{"6.2", "Different key ordering | Yes", func(_ *testing.T, s *seller) {
		s.replays(true, `{"a":{"x":1,"y":2},"b":3}`, `{"b":3,"a":{"y":2,"x":1}}`)
	}},
	{"6.2", "`null` means \"clear this field\"; absent means \"do not modify\"", func(_ *testing.T, s *seller) { s.replays(false, `{"a":1}`, `{"a":1,"b":null}`) }},
	{"6.2", "Trailing zeros in numbers (`1.0` vs `1`) | Yes", func(_ *testing.T, s *seller) { s.replays(true, `{"a":1.0}`, `{"a":1}`) }},
	{"6.2", "arrays are order-sensitive", func(_ *testing.T, s *seller) { s.replays(false, `[1,2]`, `[2,1]`) }},
	{"6.3", "**original response** with the **same HTTP status code**", func(t *testing.T, s *seller) {
		for _, status := range []int{200, 302, 400, 401, 403, 409, 425, 429} {
			s.next = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "5")
				w.WriteHeader(status)
			}
			require.Equal(t, status, s.post(strconv.Itoa(status), small).Code)
			s.next = nil
			require.Equal(t, status, s.replayed(strconv.Itoa(status), small).Code)
		}
	}},
	{"6.3", "**SHOULD** include the header `Idempotent-Replayed: true`", func(t *testing.T, s *seller) {
		require.Empty(t, s.post("k", small).Header().Get("Idempotent-Replayed"))
		s.replayed("k", small)
	}},
	{"6.3", "**Update endpoints** (`POST /checkout_sessions/{id}`) follow the same replay semantics", func(_ *testing.T, s *seller) {
		s.post("k", small, path("/1"))
		s.replayed("k", small, path("/1"))
	}},
	{"6.3", "**MUST NOT** re-execute side effects", runsOnce},
	{"6.4", "All idempotency errors use `type: \"invalid_request\"`", func(t *testing.T, s *seller) {
		s.whileRunning("k", small, func() {
			for _, w := range []*httptest.ResponseRecorder{s.post("", small), s.post("k", "{}"), s.post("k", small)} {
				require.Contains(t, w.Body.String(), `"type":"invalid_request"`)
			}
		})
	}},
	{"6.4", "`idempotency_conflict` | **No** (permanent)", func(t *testing.T, s *seller) {
		s.post("k", small)
		w := s.post("k", "{}")
		says(t, w, 422, `{"type":"invalid_request","code":"idempotency_conflict","message":"Idempotency-Key has already been used with a different request body"}`)
		require.Empty(t, w.Header().Get("Retry-After"))
		s.whileRunning("l", small, func() { require.Equal(t, 422, s.post("l", "{}").Code) })
	}},
	{"6.4", "`idempotency_in_flight` | Yes (honor `Retry-After`)", func(t *testing.T, s *seller) {
		s.whileRunning("k", small, func() {
			says(t, s.post("k", small), 409, `{"type":"invalid_request","code":"idempotency_in_flight","message":"A request with this Idempotency-Key is currently being processed"}`)
		})
	}},
	{"6.4", "Servers **SHOULD** include a `Retry-After` header (in seconds)", func(t *testing.T, s *seller) {
		s.whileRunning("k", small, func() { require.Equal(t, "1", s.post("k", small).Header().Get("Retry-After")) })
		s.down.Store(true)
		require.Equal(t, "1", s.post("k", small).Header().Get("Retry-After"))
	}},
	{"6.5", "**MUST NOT** be cached against the idempotency key", func(t *testing.T, s *seller) {
		for _, status := range []int{500, 503, 599} {
			s.fails(status)
			require.Equal(t, status, s.post(strconv.Itoa(status), small).Code)
			require.Equal(t, 201, s.post(strconv.Itoa(status), small).Code)
		}
	}},
	{"6.5", "**MUST NOT** be cached against the idempotency key", func(t *testing.T, s *seller) { // nor after Commit
		for key, flush := range map[string]bool{"k": false, "l": true} {
			runs := s.runs
			s.next = func(w http.ResponseWriter, r *http.Request) {
				require.NoError(t, lock.Commit(r.Context()))
				w.Header().Set("Content-Length", "0")
				w.WriteHeader(http.StatusInternalServerError)
				if flush {
					require.NoError(t, http.NewResponseController(w).Flush())
				}
			}
			require.Equal(t, 500, s.post(key, small).Code)
			w := s.post(key, small)
			says(t, w, 409, `{"type":"processing_error","code":"result_not_replayable","message":"The request was processed, but its answer cannot be sent again."}`)
			require.Equal(t, runs+1, s.runs)
		}
	}},
	{"6.5", "**MUST** be processed as a **fresh request**", func(t *testing.T, s *seller) {
		s.fails(500)
		s.post("k", small)
		require.Equal(t, 201, s.post("k", `{"another":"body"}`).Code)
		require.Equal(t, 2, s.runs)
	}},
	{"6.6", "**at least 24 hours**", func(_ *testing.T, s *seller) { s.keptForADay() }},
	{"6.6", "treated as a **new request** (no error)", func(_ *testing.T, s *seller) { s.keptForADay() }},
	{"6.7", "extension-defined fields in the request body **MUST** participate", func(_ *testing.T, s *seller) {
		s.replays(false, `{"a":1,"discounts":{"codes":["A"]}}`, `{"a":1,"discounts":{"codes":["B"]}}`)
	}},
	{"3.1", "Error Shape (flat)", func(t *testing.T, s *seller) {
		s.down.Store(true)
		says(t, s.post("k", small), 503, `{"type":"service_unavailable","code":"unavailable","message":"Duplicates cannot be excluded at the moment, so this attempt was not processed."}`)
		s.down.Store(false)
		require.Equal(t, 400, s.post("k", `{"a":1,"a":2}`).Code, "it has two meanings")
		s.panicsAfterCommit("l")
		says(t, s.post("l", small), 409, `{"type":"processing_error","code":"result_not_replayable","message":"The request was processed, but its answer cannot be sent again."}`)
	}},
}

var ucpSentences = []sentence{
	{"rest.openapi.json", `"required": true`, func(t *testing.T, s *seller) {
		require.Equal(t, 400, s.post("", small).Code)
		require.Zero(t, s.runs)
	}},
	{"signatures", "Return cached response, do not re-execute", runsOnce},
	{"signatures", "Reject with `409 Conflict` (REST)", func(t *testing.T, s *seller) {
		s.post("k", small)
		says(t, s.post("k", "{}"), 409, `{"code":"key_reused","content":"The key was used for a different request."}`)
		require.Equal(t, 1, s.runs)
		s.whileRunning("l", small, func() { require.Equal(t, 409, s.post("l", "{}").Code) })
	}},
	{"signatures", "Fail closed (reject request with 503)", func(t *testing.T, s *seller) {
		s.down.Store(true)
		says(t, s.post("k", small), 503, `{"code":"unavailable","content":"Duplicates cannot be excluded at the moment, so this attempt was not processed."}`)
		require.Zero(t, s.runs)
	}},
	{"signatures", "comparing the SHA-256 hash of the raw body bytes", func(_ *testing.T, s *seller) {
		s.replays(true, `{"a":1}`, `{"a":1}`)
		s.replays(false, `{"a":1}`, `{"a": 1}`)
		s.replays(false, `{"a":1,"b":2}`, `{"b":2,"a":1}`)
	}},
	{"signatures", "Per-client, per-operation type", func(_ *testing.T, s *seller) {
		s.isNew(otherUser, func(r *http.Request) { r.Method = http.MethodPut }, path("/1/complete"))
	}},
	{"signatures", "Minimum 24 hours, recommended 48 hours", func(_ *testing.T, s *seller) { s.keptForADay() }},
	{"signatures", "**MUST NOT** re-serialize JSON bodies", func(t *testing.T, s *seller) {
		const spelled = "{ \"a\" : 1.0,\r\n\"b\":\"\\u00e9\" }"
		s.next = func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Equal(t, spelled, string(body))
			w.WriteHeader(http.StatusCreated)
		}
		require.Equal(t, 201, s.post("k", spelled).Code)
	}},
	{"shopping/checkout/rest", "Store the key with the operation result for at least 24 hours", func(_ *testing.T, s *seller) { s.keptForADay() }},
	{"shopping/checkout/rest", "Return the cached result for duplicate keys whose request body matches the original", func(t *testing.T, s *seller) {
		s.fails(422)
		require.Equal(t, 422, s.post("k", small).Code)
		require.Equal(t, 422, s.post("k", small).Code)
		require.Equal(t, 1, s.runs)
	}},
	{"shopping/checkout/rest", "Return `409 Conflict` if the key is reused with a mismatched body", func(_ *testing.T, s *seller) {
		s.replays(false, small, "")
	}},
	{"shopping/checkout/rest", "JSON body containing `code` and `content`", func(t *testing.T, s *seller) {
		says(t, s.post("", small), 400, `{"code":"key_missing","content":"The header Idempotency-Key is missing."}`)
		s.post("k", small)
		says(t, s.post("k", "{}"), 409, `{"code":"key_reused","content":"The key was used for a different request."}`)
	}},
	{"overview/index", "header (REST) or `error.data.retry_after` (MCP) for 429 and 503", func(t *testing.T, s *seller) {
		s.down.Store(true)
		require.Equal(t, "1", s.post("k", small).Header().Get("Retry-After"))
		s.down.Store(false)
		s.whileRunning("k", small, func() {
			w := s.post("k", small)
			says(t, w, 503, `{"code":"in_progress","content":"The same request was sent before, and is still being processed."}`)
			require.Equal(t, "1", w.Header().Get("Retry-After"))
		})
	}},
	{"shopping/checkout/index", "**MUST NOT** use a new idempotency key for that retry", func(t *testing.T, s *seller) {
		// Nothing that a client takes for another body, which needs another key.
		s.panicsAfterCommit("k")
		says(t, s.post("k", small), 500, `{"code":"result_not_replayable","content":"The request was processed, but its answer cannot be sent again."}`)
	}},
}

// TestContracts executes the sentences of each contract, and finds them on the page.
func TestContracts(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../docs/evidence/contracts.md"))(t)
	for name, contract := range map[string]struct {
		option    func() latch.Option
		sentences []sentence
		locker    lock.Option
	}{
		"ACP": {latch.ACP, acpSentences, lock.WithFailClosed()},
		"UCP": {latch.UCP, ucpSentences, lock.WithFailOpen()},
	} {
		rows := rowsOf(t, string(page), "## "+name+"\n")
		for _, c := range contract.sentences {
			quote := strings.ReplaceAll(c.quote, "|", `\|`)
			row := slices.IndexFunc(rows, func(r row) bool { return r.section == c.section && strings.Contains(r.says, quote) })
			require.GreaterOrEqual(t, row, 0, "the page has no row for %s: %s", c.section, quote)
			rows[row].held = true
			inBubble(t, name+"/"+c.section+"/"+c.quote, func(t *testing.T) { c.held(t, newSeller(t, contract.option(), contract.locker)) })
		}
		for _, r := range rows {
			require.True(t, r.held || strings.Contains(r.here, "`Test") || strings.Contains(r.here, "]("), "no test holds %s: %s", r.section, r.says)
		}
	}
}

type row struct {
	section, says, here string
	held                bool // by a test above
}

func rowsOf(t *testing.T, page, heading string) (rows []row) {
	t.Helper()
	_, text, found := strings.Cut(page, heading)
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[2]) == "it says" {
			continue
		}
		rows = append(rows, row{section: strings.Trim(cells[1], " `"), says: strings.ReplaceAll(cells[2], "\x00", `\|`), here: cells[3]})
	}
	return rows
}

// TestContractsWithoutTheirOption is the twin: an Idempotent with default options breaks both.
func TestContractsWithoutTheirOption(t *testing.T) {
	t.Parallel()
	s := &seller{t: t, Handler: once(newLocker(t, memstore.New()))(http.HandlerFunc(created))}
	s.post("k", `{"a":1}`)
	require.Equal(t, 422, s.post("k", `{"a": 1}`).Code)
	var body map[string]any
	require.NoError(t, json.Unmarshal(s.post("", small).Body.Bytes(), &body))
	require.NotContains(t, body, "code")
}

// TestStripe: the rules of version 1 that docs/payments.md lists.
func TestStripe(t *testing.T) {
	t.Parallel()
	for status, again := range map[int]int{200: 200, 402: 402, 404: 404, 409: 409, 500: 500, 503: 503, 400: 201, 401: 201, 403: 201, 429: 201} {
		s := newSeller(t, latch.Stripe())
		s.fails(status)
		require.Equal(t, status, s.post("k", small).Code)
		require.Equal(t, again, s.post("k", small).Code)
	}
	s := newSeller(t, latch.Stripe())
	s.whileRunning("k", small, func() {
		says(t, s.post("k", small), 409, `{"error":{"type":"invalid_request_error","code":"idempotency_key_in_use","message":"The same request was sent before, and is still being processed."}}`)
	})
	says(t, s.post("k", "{}"), 400, `{"error":{"type":"idempotency_error","code":"key_reused","message":"The key was used for a different request."}}`)
	says(t, s.post("a b", "{}"), 400, `{"error":{"type":"invalid_request_error","code":"key_invalid","message":"The header Idempotency-Key is neither one string of RFC 8941 nor one bare key; send a UUID, say."}}`)
	s.down.Store(true)
	says(t, s.post("l", small), 503, `{"error":{"type":"api_error","code":"unavailable","message":"Duplicates cannot be excluded at the moment, so this attempt was not processed."}}`)
}

// The answers of a contract are kept for 24 hours, also when an option of the Locker says less.
func TestContractsDemandADay(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	for name, contract := range map[string]latch.IdempotentOption{"ACP": latch.ACP(), "UCP": latch.UCP(), "Stripe": latch.Stripe()} {
		require.PanicsWithValue(t, "middleware.Idempotent: its contract demands that answers are kept for 24h0m0s or longer, and they are kept for 23h59m59s", func() {
			once(l.With(lock.WithKeep(24*time.Hour-time.Second)), contract)
		}, name)
		require.NotPanics(t, func() { once(l.With(lock.WithKeep(24*time.Hour)), contract) }, name)
	}
	once(l.With(lock.WithKeep(time.Second)))
	latch.Dedupe(l, byUser, time.Second, latch.ACP()) // has no key that the contract speaks of
}

// TestOptionsBehindAContract: the last option counts.
func TestOptionsBehindAContract(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	s := &seller{t: t}
	s.Handler = once(l, latch.ACP(), latch.WithFinal(func(int) bool { return false }), latch.WithFingerprint(keyfunc.Global))(http.HandlerFunc(created))
	require.Equal(t, 201, s.post("k", small).Code)
	w := s.post("k", "{}")
	require.Equal(t, 201, w.Code)
	require.Empty(t, w.Header().Get("Idempotent-Replayed"))
	require.Equal(t, "k", w.Header().Get("Idempotency-Key"))

	s.Handler = once(l.With(lock.WithWait(0)), latch.UCP(), latch.WithInProgressStatus(409))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		require.Equal(t, 409, s.post("l", small).Code, "it is in flight")
	}))
	require.Equal(t, 200, s.post("l", small).Code)
}

// TestLockTakesAContract: the refusal of an inner Lock has the format of the guard around it, and is not kept.
func TestLockTakesAContract(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		contract func() latch.Option
		status   int
		body     string
	}{
		"ACP":    {latch.ACP, 409, `{"type":"invalid_request","code":"held","message":"Another request for the same thing is still being processed."}`},
		"UCP":    {latch.UCP, 503, `{"code":"held","content":"Another request for the same thing is still being processed."}`},
		"Stripe": {latch.Stripe, 409, `{"error":{"type":"invalid_request_error","code":"held","message":"Another request for the same thing is still being processed."}}`},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			var e effects
			l := newLocker(t, memstore.New())
			h := once(l, tt.contract())(latch.Lock(l, "user", byUser, tt.contract())(http.HandlerFunc(e.answer)))
			lease := must.Get(l.Acquire(t.Context(), lock.Key("user", "42")))(t)
			w := serve(h, typed("application/json", small, false))
			says(t, w, tt.status, tt.body)
			require.Equal(t, "1", w.Header().Get("Retry-After"))
			require.Equal(t, "held", w.Header().Get("Latch-Problem"))
			require.NoError(t, lease.Release(t.Context()))
			require.Equal(t, 201, serve(h, typed("application/json", small, false)).Code)
			e.require(t, 1)
		})
	}

	// Over a store that does not answer, UCP refuses although the Locker fails open.
	l := newLocker(t, unreachable(), lock.WithFailOpen(), lock.WithLogger(quiet))
	require.Equal(t, 503, serve(latch.Lock(l, "user", byUser, latch.UCP())(mustNotRun(t)), post("42")).Code)
}
