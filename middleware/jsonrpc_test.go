package middleware_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// buys reports the calls of the tests that have an effect.
func buys(method, tool string) bool { return method == "tools/call" && tool != "search" }

// rpcServer counts the calls that reach it, and answers with their id.
type rpcServer struct {
	effects

	answer func(w http.ResponseWriter, id json.RawMessage, n int64) // nil: as JSON
}

func (s *rpcServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := s.n.Add(1)
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(body)
	}
	var call map[string]json.RawMessage
	_ = json.NewDecoder(body).Decode(&call)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Mcp-Session-Id", "of the first")
	switch id, has := call["id"]; {
	case !has:
		w.WriteHeader(http.StatusAccepted)
	case s.answer != nil:
		s.answer(w, id, n)
	default:
		_, _ = fmt.Fprintf(w, `{ "jsonrpc": "2.0", "result": {"id": "inner", "order": %d}, "id": %s }`, n, id)
	}
}

// rpcGuard returns a guard with JSONRPC for the calls that buy.
func rpcGuard(t *testing.T, opts ...lock.Option) func(http.Handler) http.Handler {
	t.Helper()
	return latch.Idempotent(newLocker(t, memstore.New(), opts...), byUser, keyfunc.IdempotencyKey, latch.JSONRPC(buys))
}

// calls posts body to h, with a key in the header unless it is "".
func calls(h http.Handler, key, body string) *httptest.ResponseRecorder {
	r := keyedBody(key, body)
	if key == "" {
		r.Header.Del("Idempotency-Key")
	}
	r.Header.Set("Content-Type", "application/json")
	return serve(h, r)
}

func buy(id, args string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"buy","arguments":` + args + `}}`
}

// TestReplayHasTheIDOfItsCall, byte by byte, and the rest of the first answer.
func TestReplayHasTheIDOfItsCall(t *testing.T) {
	t.Parallel()
	var s rpcServer
	h := rpcGuard(t)(&s)
	for i, id := range []string{
		`1`, `2`, `9007199254740993`, `123456789012345678901234567890`, `1.0`, `-0`, `1E2`, `"1"`, `""`, `"a<b>&\u0061\u2028é"`, `null`, ` 7 `, `"` + strings.Repeat("x", 1000) + `"`,
	} {
		w := calls(h, "k", buy(id, `{"sku":"tea"}`))
		require.Equal(t, 200, w.Code, id)
		require.Equal(t, `{ "jsonrpc": "2.0", "result": {"id": "inner", "order": 1}, "id": `+strings.TrimSpace(id)+` }`, w.Body.String())
		if i > 0 {
			require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
			require.Empty(t, w.Header().Get("Mcp-Session-Id"))
		}
	}
	s.require(t, 1)
}

// TestCallsThatAreTheSame have one record, and others have not.
func TestCallsThatAreTheSame(t *testing.T) {
	t.Parallel()
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + params + `}`
	}
	first := buy("1", `{"sku":"tea","n":1}`)
	for body, want := range map[string]int{
		buy("2", `{"sku":"tea","n":1}`): 200,
		`{"params":{"arguments":{"n":1.0,"sku":"te\u0061"},"name":"buy"},"method":"tools/call","id":"x","jsonrpc":"2.0"}`:                           200,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"buy","arguments":{"sku":"tea","n":1}},"extra":"members are not compared"}`: 200,
		call(`{"_meta":{"progressToken":7},"name":"buy","arguments":{"sku":"tea","n":1}}`):                                                          200,
		call(`{"idempotencyKey":"k","name":"buy","arguments":{"sku":"tea","n":1}}`):                                                                 200,
		buy("2", `{"sku":"tea","n":1,"idempotency_key":"k"}`):                                                                                       200,
		buy("2", `{"sku":"tea","n":2}`):                                                 422,
		buy("2", `{"sku":"tea","n":1,"_meta":{}}`):                                      422,
		buy("2", `{"sku":"tea","n":1,"id":2}`):                                          422,
		call(`{"idempotencyKey":"other","name":"buy","arguments":{"sku":"tea","n":1}}`): 400,
		buy("2", `{"meta":{"idempotency-key":7},"sku":"tea"}`):                          400,
		call(`{"name":"refund","arguments":{"sku":"tea","n":1}}`):                       201, // another tool
		call(`{"name":"search","arguments":{"sku":"tea","n":1}}`):                       201, // no effect
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`:                        201,
		`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`:                         201, // an answer of the client
	} {
		var s rpcServer
		h := rpcGuard(t)(&s)
		require.Equal(t, 200, calls(h, "k", first).Code)
		w := calls(h, "k", body)
		if want == 201 {
			s.require(t, 2)
			require.Empty(t, w.Header().Get("Idempotent-Replayed"))
			continue
		}
		require.Equal(t, want, w.Code, body)
		s.require(t, 1)
		if want != 200 {
			require.Contains(t, w.Body.String(), `{"jsonrpc":"2.0","id":2,"error":{"code":-32`)
		}
	}
}

// TestMessagesWithoutABody: MCP ends a session with a DELETE.
func TestMessagesWithoutABody(t *testing.T) {
	t.Parallel()
	var s rpcServer
	h := rpcGuard(t)(&s)
	for _, method := range []string{http.MethodDelete, http.MethodGet} {
		require.Equal(t, 202, serve(h, httptest.NewRequest(method, "/mcp", nil)).Code)
	}
	s.require(t, 2)
}

// TestKeyInTheBody: where contracts have it, and without a header.
func TestKeyInTheBody(t *testing.T) {
	t.Parallel()
	for params, found := range map[string]bool{
		`{"name":"buy","idempotencyKey":"k"}`:                                         true,
		`{"name":"buy","arguments":{"idempotency_key":"k"}}`:                          true,
		`{"name":"buy","arguments":{"meta":{"idempotency-key":"k"}}}`:                 true,
		`{"name":"buy","arguments":{"meta":{"idempotency_key":"k"}}}`:                 true,
		`{"name":"buy","idempotencyKey":42}`:                                          true,
		`{"name":"buy","idempotencyKey":"k","arguments":{"idempotency_key":"k"}}`:     true,
		`{"name":"buy","idempotencyKey":"k","arguments":{"idempotency_key":"other"}}`: false,
		`{"name":"buy","idempotencyKey":""}`:                                          false,
		`{"name":"buy","idempotencyKey":{"a":1}}`:                                     false,
		`{"name":"buy","idempotencyKey":"a\u0000"}`:                                   false,
		`{"name":"buy","idempotencyKey":"` + strings.Repeat("x", 256) + `"}`:          false,
		`{"name":"buy"}`: false,
		`{"name":"buy","_meta":{"idempotency-key":"only where the application says so"}}`: false,
	} {
		var s rpcServer
		h := rpcGuard(t)(&s)
		for id := range 2 {
			w := calls(h, "", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, id, params))
			if found {
				require.Equal(t, 200, w.Code, params)
			} else {
				require.Equal(t, 400, w.Code, params)
				require.Contains(t, w.Body.String(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,`, id))
			}
		}
		s.require(t, map[bool]int64{true: 1}[found])
	}
	var s rpcServer
	h := latch.Idempotent(newLocker(t, memstore.New()), byUser, keyfunc.Optional(keyfunc.IdempotencyKey),
		latch.JSONRPC(buys, "/params/_meta/example.com~1key"))(&s)
	for range 2 {
		require.Equal(t, 200, calls(h, "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"buy","_meta":{"example.com/key":"k"}}}`).Code)
	}
	s.require(t, 1)
	for range 2 {
		require.Equal(t, 200, calls(h, "", buy("1", "{}")).Code, "without a key, and Optional")
	}
	s.require(t, 3)
}

// TestHostileMessages do not reach the handler, unguarded or not.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for body, code := range map[string]int{
		"":                                -32600,
		"x":                               -32700,
		"\xef\xbb\xbf" + buy("1", "{}"):   -32700,
		buy("1", "{}") + buy("2", "{}"):   -32700,
		buy("1", "\"\xff\""):              -32700,
		buy("1", `"\ud800"`):              -32700,
		buy("1", deep(70)):                -32700,
		`[` + buy("1", "{}") + `]`:        -32600,
		`"tools/call"`:                    -32600,
		`{}`:                              -32600,
		`{"id":1,"method":""}`:            -32600,
		`{"id":[1],"method":"ping"}`:      -32600,
		`{"id":1,"method":7}`:             -32600,
		`{"id":{"a":1},"method":"ping"}`:  -32600,
		`{"id":true,"method":"ping"}`:     -32600,
		`{"id":1,"id":2,"method":"ping"}`: -32700,
		`{"id":1,"method":"ping","method":"tools/call"}`:                         -32700,
		`{"id":1,"method":"ping","Method":"tools/call","params":{"name":"buy"}}`: -32600,
		`{"id":1,"method":"tools/call","param\u017f":{"name":"buy"}}`:            -32600,
		`{"id":1,"method":"tools/call","params":{"name":"search","NAME":"buy"}}`: -32600,
		`{"id":"` + strings.Repeat("x", 1100) + `","method":"ping"}`:             -32600,
	} {
		var s rpcServer
		w := calls(rpcGuard(t)(&s), "k", body)
		require.Equal(t, 400, w.Code, body)
		require.Contains(t, w.Body.String(), fmt.Sprintf(`"error":{"code":%d,`, code), body)
		require.True(t, json.Valid(w.Body.Bytes()), w.Body.String())
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		s.require(t, 0)
	}
	var s rpcServer
	w := calls(rpcGuard(t)(&s), "k", buy("1", `"`+strings.Repeat("x", 1<<20)+`"`))
	require.Equal(t, 413, w.Code)
	require.Contains(t, w.Body.String(), `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,`)
	s.require(t, 0)
}

// TestCompressedCall is compared by its content, and its id is found.
func TestCompressedCall(t *testing.T) {
	t.Parallel()
	var s rpcServer
	h := rpcGuard(t)(&s)
	for _, id := range []string{"101", "102"} {
		w := serve(h, compressedRequest("application/json", "gzip", compressed(t, "gzip", buy(id, "{}"))))
		require.Equal(t, 200, w.Code, w.Body.String())
		require.Contains(t, w.Body.String(), `"id": `+id+` `)
	}
	s.require(t, 1)
}

// TestNotification has no response, and is refused without one.
func TestNotification(t *testing.T) {
	t.Parallel()
	var s rpcServer
	h := rpcGuard(t)(&s)
	const body = `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"buy"}}`
	for range 2 {
		w := calls(h, "k", body)
		require.Equal(t, 202, w.Code)
		require.Empty(t, w.Body.String())
	}
	s.require(t, 1)
	w := calls(h, "", body)
	require.Equal(t, 400, w.Code)
	require.Empty(t, w.Body.String())
	require.Equal(t, "key-missing", w.Header().Get("Latch-Problem"))
}

// An answer that ends before its response says nothing of the call, and is not the answer of its repeats. One with a
// response is, and so is the status of an older transport, whose response takes another way.
func TestCallWithoutAResponse(t *testing.T) {
	t.Parallel()
	const plain, events = "application/json", "text/event-stream"
	for name, tt := range map[string]struct {
		kind, body string
		status     int
		flushed    bool
		unknown    bool
		runs       int64 // 0: once
	}{
		"events, empty":          {kind: events, status: 200, unknown: true},
		"events, empty, flushed": {kind: events, status: 200, flushed: true, unknown: true},
		"events with progress":   {kind: events, status: 200, body: "data: {\"method\":\"notifications/progress\"}\n\n", flushed: true, unknown: true},
		"JSON, empty":            {kind: plain, status: 200, unknown: true},
		"events cut off":         {kind: events, status: 200, body: "data: {\"result\":", unknown: true},
		"events, a result":       {kind: events, status: 200, body: "data: {\"result\":{},\"id\":1}\n\n: bye\n\n", flushed: true},
		"events, an unread call": {kind: events, status: 200, body: "data: {\"error\":{},\"id\":null}\n\n"},
		"the older transport":    {kind: plain, status: 202},
		"a refusal of the call":  {kind: plain, status: 404, body: `{"error":{},"id":1}`},
		"no session, Go":         {kind: "text/plain", status: 404, body: "session not found\n", runs: 2},
		"no session, TypeScript": {kind: plain, status: 404, body: `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`, runs: 2},
		"no session, Python":     {kind: plain, status: 404, body: `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`, runs: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := rpcServer{answer: func(w http.ResponseWriter, _ json.RawMessage, _ int64) {
				w.Header().Set("Content-Type", tt.kind)
				w.WriteHeader(tt.status)
				if tt.flushed {
					flush(w)
				}
				_, _ = io.WriteString(w, tt.body)
			}}
			h := rpcGuard(t)(&s)
			first := calls(h, "k", buy("1", "{}"))
			require.Equal(t, tt.status, first.Code)
			require.Equal(t, tt.body, first.Body.String())
			again := calls(h, "k", buy("1", "{}"))
			if tt.unknown {
				require.Equal(t, 409, again.Code)
				require.Equal(t, "outcome-unknown", again.Header().Get("Latch-Problem"))
			} else {
				require.Equal(t, tt.status, again.Code)
				require.Equal(t, tt.body, again.Body.String())
			}
			s.require(t, max(tt.runs, 1))
		})
	}
}

// TestStreamOfACall: each response in the events has the id of the repeat, and nothing else changes,
// except that events lose the ids with which a client would resume the first stream.
func TestStreamOfACall(t *testing.T) {
	t.Parallel()
	stream := func(id, event, last string) string {
		return ": hello\r\n\r\n" +
			event + "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1}}\n\n" +
			"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"sampling/createMessage\"}\n\n" +
			"data:{\"jsonrpc\":\"2.0\",\rdata:  \"id\":" + id + ",\rdata: \"result\":{\"id\":1}}\r\r" +
			"data: not JSON, \"id\":1\ndata\n\n" +
			"data: {\"id\":null,\"error\":{}}\n\n" +
			last + "data: {\"jsonrpc\":\"2.0\",\"result\":{},\"id\":" + id + "}"
	}
	s := rpcServer{answer: func(w http.ResponseWriter, id json.RawMessage, _ int64) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for b := range strings.SplitSeq(stream(string(id), "id: 0_0\n", "id\n"), "\n\n") {
			_, _ = io.WriteString(w, b)
			flush(w)
			if !strings.HasSuffix(b, "}") || !strings.HasPrefix(b, "id\n") {
				_, _ = io.WriteString(w, "\n\n")
			}
		}
	}}
	h := rpcGuard(t)(&s)
	require.Equal(t, stream(`1`, "id: 0_0\n", "id\n"), calls(h, "k", buy("1", "{}")).Body.String())
	for _, id := range []string{`"the second"`, `9007199254740993`} {
		require.Equal(t, stream(id, "", ""), calls(h, "k", buy(id, "{}")).Body.String())
	}
	s.require(t, 1)
}

// TestRefusalsOfCalls have the format and the statuses of JSON-RPC, and of UCP's MCP binding.
func TestRefusalsOfCalls(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New(), lock.WithWait(0))
	complete := func(id, args string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"complete_checkout","arguments":` + args + `}}`
	}
	for name, tt := range map[string]struct {
		option             latch.IdempotentOption
		inProgress, reused int
	}{
		"JSONRPC":    {latch.JSONRPC(buys), 409, 422},
		"UCPOverMCP": {latch.UCPOverMCP(), 503, 409},
	} {
		guard := latch.Idempotent(l, byUser, keyfunc.IdempotencyKey, tt.option)
		h := guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			again := calls(guard(mustNotRun(t)), name, complete("2", `{"id":"c1"}`))
			require.Equal(t, tt.inProgress, again.Code)
			require.Equal(t, "1", again.Header().Get("Retry-After"))
			require.JSONEq(t, `{"jsonrpc":"2.0","id":2,"error":{"code":-32000,
				"message":"The same request was sent before, and is still being processed. Send the same call again after 1 second.",
				"data":{"type":"https://github.com/httplatch/httplatch/blob/main/docs/problems.md#in-progress","code":"in_progress",
				"content":"The same request was sent before, and is still being processed.","retry_after":1}}}`, again.Body.String())
			_, _ = io.WriteString(w, `{"id":1,"result":{}}`)
		}))
		require.Equal(t, 200, calls(h, name, complete("1", `{"id":"c1"}`)).Code)
		again := calls(h, name, complete("3", `{"id":"c2"}`))
		require.Equal(t, tt.reused, again.Code)
		require.Contains(t, again.Body.String(), `"code":"key_reused"`)
		require.Contains(t, again.Body.String(), `{"jsonrpc":"2.0","id":3,"error":{"code":-32000,`)
	}
}

// TestMessageSaysWhatToDo, since a model sees nothing else: "Send the same call again" where the table of
// problems.md says yes, and something else where it does not.
func TestMessageSaysWhatToDo(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../docs/problems.md"))(t)
	agents := must.Get(os.ReadFile("../docs/agents.md"))(t)
	for _, p := range refusals(t) {
		kind := string(p.Kind())
		switch p.Kind() {
		case latch.ProblemHeld, latch.ProblemCoolingDown, latch.ProblemKeyNotSupported: // of Lock and Refuse
			continue
		}
		row := regexp.MustCompile("(?m)^\\| \\[`" + kind + "`\\].*\\| ([^|]*) \\|$").FindStringSubmatch(string(page))
		require.NotNil(t, row, kind)
		w := httptest.NewRecorder()
		latch.RefuseCall(w, keyedBody("k", buy("7", "{}")), p)
		var answer struct{ Error struct{ Message string } }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		next, is := strings.CutPrefix(answer.Error.Message, p.Title+" ")
		require.True(t, is, answer.Error.Message)
		require.NotEmpty(t, next)
		if p.Kind() == latch.ProblemInProgress {
			_, example, _ := strings.Cut(string(agents), "```json\n")
			example, _, _ = strings.Cut(example, "```")
			require.JSONEq(t, w.Body.String(), example, "docs/agents.md")
		}
		require.Equal(t, strings.HasPrefix(row[1], "yes"), strings.HasPrefix(next, "Send the same call again"), "%s: %s", kind, next)
	}
}

// TestMessageNamesThePlacesOfAKey, since some clients can set no header.
func TestMessageNamesThePlacesOfAKey(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	for want, guard := range map[string]guardFunc{
		"The header Idempotency-Key is missing. A key can be at /params/arguments/key, /params/key. Correct that, and send the call again.": latch.Idempotent(l, byUser,
			keyfunc.IdempotencyKey, latch.JSONRPC(buys, "/params/arguments/key", "/params/key")),
		"The messageId is missing. A key can be at /params/message/messageId. Correct that, and send the call again.": latch.Idempotent(l, byUser,
			keyfunc.IdempotencyKey, latch.A2A()),
		"The header X-Org is missing. Correct that, and send the call again.": latch.Idempotent(l, keyfunc.Header("X-Org"),
			keyfunc.IdempotencyKey, latch.JSONRPC(buys)),
	} {
		body := buy("1", "{}")
		if strings.Contains(want, "messageId") {
			body = `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{}}}`
		}
		w := calls(guard(mustNotRun(t)), "", body)
		require.Equal(t, 400, w.Code)
		require.Contains(t, w.Body.String(), `"message":"`+want+`"`)
	}
}

// TestUCPOverMCP: which tools need a key, and which are guarded if they have one.
func TestUCPOverMCP(t *testing.T) {
	t.Parallel()
	for tool, want := range map[string]struct{ keyless, runs int }{
		"complete_checkout": {400, 1}, "cancel_checkout": {400, 1},
		"create_checkout": {200, 1}, "update_checkout": {200, 1}, "update_cart": {200, 1},
		"get_checkout": {200, 2}, "search_catalog": {200, 2},
	} {
		call := func(id int, meta string) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"meta":{"ucp-agent":{"profile":"p%d"}%s},"id":"c"}}}`, id, tool, id, meta)
		}
		var s rpcServer
		h := latch.Idempotent(newLocker(t, memstore.New()), byUser, keyfunc.IdempotencyKey, latch.UCPOverMCP())(&s)
		require.Equal(t, want.keyless, calls(h, "", call(1, "")).Code, tool)
		before := s.n.Load()
		require.Equal(t, 200, calls(h, "", call(1, `,"idempotency-key":"k"`)).Code)
		require.Equal(t, 200, calls(h, "k", call(2, "")).Code)
		require.EqualValues(t, want.runs, s.n.Load()-before, tool)
	}
}

// TestA2A: a message runs once for each messageId, whatever the header says.
func TestA2A(t *testing.T) {
	t.Parallel()
	var s rpcServer
	h := latch.Idempotent(newLocker(t, memstore.New()), byUser, keyfunc.IdempotencyKey, latch.A2A())(&s)
	send := func(method, header string, id int, message string) *httptest.ResponseRecorder {
		return calls(h, header, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"message":%s}}`, id, method, message))
	}
	for _, method := range []string{"message/send", "message/stream", "SendMessage", "SendStreamingMessage"} {
		before := s.n.Load()
		for id, header := range []string{"", "a", "b"} {
			w := send(method, header, id, `{"messageId":"m","parts":[{"kind":"text","text":"buy tea"}]}`)
			require.Equal(t, 200, w.Code)
			require.Contains(t, w.Body.String(), fmt.Sprintf(`"id": %d `, id))
		}
		require.EqualValues(t, 1, s.n.Load()-before)
		require.Equal(t, 422, send(method, "", 9, `{"messageId":"m","parts":[]}`).Code)
		require.Equal(t, 400, send(method, "k", 9, `{"parts":[]}`).Code)
	}
	before := s.n.Load()
	for range 2 {
		require.Equal(t, 200, send("tasks/get", "", 1, `{}`).Code)
	}
	require.EqualValues(t, 2, s.n.Load()-before)
}

// TestCallsWithoutAKey: equal calls within the window of a Dedupe are one.
func TestCallsWithoutAKey(t *testing.T) {
	t.Parallel()
	var s rpcServer
	h := latch.Dedupe(newLocker(t, memstore.New()), byUser, time.Minute, latch.JSONRPC(buys))(&s)
	for id := range 3 {
		require.Contains(t, calls(h, "", buy(fmt.Sprint(id), "{}")).Body.String(), fmt.Sprintf(`"id": %d `, id))
	}
	s.require(t, 1)
	calls(h, "", buy("1", `{"sku":"coffee"}`))
	s.require(t, 2)
}

func TestJSONRPCPanics(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { latch.JSONRPC(buys, "no pointer") })
}
