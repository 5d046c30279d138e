package middleware

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/middleware/internal/jsonrpc"
	"github.com/httplatch/httplatch/middleware/internal/record"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// JSONRPC makes [Idempotent] and [Dedupe] guard the calls of a JSON-RPC 2.0 endpoint over HTTP, as MCP and others
// have:
//
//	once := latch.Idempotent(l, keyfunc.Context(auth.Agent), keyfunc.IdempotencyKey, latch.JSONRPC(
//		func(method, tool string) bool { return method == "tools/call" && tool != "search" }))
//
// effect reports whether a call may have an effect. tool is the name of the tool for tools/call of MCP, and ""
// otherwise. All other messages pass unguarded, and so do the client's answers to requests of the server. effect must
// be safe for concurrent use. docs/agents.md shows a server.
//
// A JSON-RPC client sends each call with a new id, so these rules replace those of other requests:
//
//   - Two calls of one key are the same if the method and the meaning of the params are the same, without the id,
//     _meta and the keys themselves. One key for two tools is two calls.
//   - The key is the result of the key function, or else a string or an integer in the body: at keys, which are JSON
//     pointers, or unless given, where contracts have it (docs/agents.md). Two keys that differ are refused. With
//     [keyfunc.Optional], calls without a key run unguarded.
//   - A replay has the id of the repeated call, byte by byte, in JSON and in each event of a stream. The events lose
//     their own ids, with which a client would resume the stream of the first call.
//   - A refusal is a JSON-RPC error with this id, under the HTTP status of the [Problem]. error.data has type, code,
//     content and retry_after. The code is -32700 or -32600 for a body that is no call, -32602 for a key that is
//     missing or malformed, and -32000 otherwise.
//   - A repeated notification, which has no response, gets the same status. If the answer to any other call is an
//     empty 200, or a stream of events without a response, its outcome is unknown. A 4xx without a response to the
//     call is not kept.
//
// A batch is refused: some of its calls may be done and others not. A message that two decoders may read differently
// is refused, too, whether it has an effect or not: see [keyfunc.CanonicalJSON], and members whose names differ from
// jsonrpc, id, method and params, or from the name of a tool, in case only. The limit of a request's body
// ([WithBodyLimits]) applies to every message. A response with an error member is kept if its HTTP status is.
//
// Middleware that compresses or signs answers goes outside of the guard: inside, also behind a proxy, the
// Accept-Encoding of a guarded call is "identity". Later options override the parts that they set. JSONRPC panics if
// effect is nil or a pointer is malformed.
func JSONRPC(effect func(method, tool string) bool, keys ...string) IdempotentOption {
	mustNot(effect == nil, "JSONRPC: nil function")
	if len(keys) == 0 {
		keys = []string{
			"/params/idempotencyKey", "/params/arguments/idempotency_key",
			"/params/arguments/meta/idempotency-key", "/params/arguments/meta/idempotency_key",
		}
	}
	return newRPC(rpc{effect: effect}, keys...)
}

// UCPOverMCP is [UCP] for the MCP binding of the Universal Commerce Protocol: a [JSONRPC] whose key is in the header
// or in meta["idempotency-key"] of the arguments. complete_checkout and cancel_checkout need a key. Other tools that
// create_, update_, complete_ or cancel_ are guarded if they have one, and all others pass. meta is no content.
// Refusals are JSON-RPC errors of code -32000 with the statuses of UCP.
//
// The protocol compares the bytes of the whole body, which would refuse each repeat over MCP, because of its id. So
// this option compares what JSONRPC compares.
func UCPOverMCP() IdempotentOption {
	return option(func(c *config) {
		UCP().applyIdempotent(c)
		newRPC(rpc{
			effect: func(method, tool string) bool {
				verb, _, _ := strings.Cut(tool, "_")
				return method == "tools/call" && (verb == "create" || verb == "update" || verb == "complete" || verb == "cancel")
			},
			keyless: func(tool string) bool { return tool != "complete_checkout" && tool != "cancel_checkout" },
			status:  ucpStatus,
			ignored: []jsonrpc.Path{{"params", "arguments", "meta"}},
		}, "/params/arguments/meta/idempotency-key").applyIdempotent(c)
	})
}

// A2A is [JSONRPC] for agents of the Agent2Agent protocol: message/send and message/stream (SendMessage and
// SendStreamingMessage since version 1.0) run once for each messageId, as "Request idempotency" of UCP's A2A binding
// demands. All other methods pass. The messageId is the key, and the key function is not called.
func A2A() IdempotentOption {
	return newRPC(rpc{
		effect: func(method, _ string) bool {
			return slices.Contains([]string{"message/send", "message/stream", "SendMessage", "SendStreamingMessage"}, method)
		},
		onlyBody: true,
	}, "/params/message/messageId")
}

func newRPC(o rpc, keys ...string) IdempotentOption {
	o.places = strings.Join(keys, ", ")
	for _, k := range keys {
		_ = keyfunc.JSON(k) // panics if it is malformed
		o.keys = append(o.keys, jsonrpc.PathOf(k))
	}
	o.ignored = append(o.ignored, o.keys...)
	return option(func(c *config) { c.rpc, c.onError = &o, o.refuse })
}

func readCall(r *http.Request, limit int64) (*jsonrpc.Call, error) {
	data, err := bodybuf.Content(r, limit)
	if err != nil {
		return nil, &bodyError{err}
	}
	text, err := keyfunc.CanonicalJSON(r)
	switch {
	case errors.Is(err, keyfunc.ErrMissing): // the body
		return nil, rpcError(jsonrpc.ErrInvalid)
	case err != nil:
		return nil, err
	}
	call, err := jsonrpc.Read(data, text)
	if err != nil {
		return nil, rpcError(err)
	}
	return call, nil
}

func rpcError(err error) error {
	text := err.Error()
	return &keyfunc.Error{Status: http.StatusBadRequest, Err: fmt.Errorf("middleware.JSONRPC: %w", err), Detail: strings.ToUpper(text[:1]) + text[1:] + "."}
}

// call returns the call of r, or [keyfunc.ErrSkip] if it has no effect.
func (o *rpc) call(r *http.Request, limit int64) (*jsonrpc.Call, error) {
	if data, err := bodybuf.Bytes(r, limit); err == nil && len(data) == 0 && r.Method != http.MethodPost { // such as the end of a session of MCP
		return nil, keyfunc.ErrSkip
	}
	c, err := readCall(r, limit)
	if err == nil && (c.Method == "" || !o.effect(c.Method, c.Tool)) {
		err = keyfunc.ErrSkip
	}
	return c, err
}

// key returns the key of c. f is the key function of the guard.
func (o *rpc) key(c *jsonrpc.Call, f keyfunc.Func, r *http.Request) (string, error) {
	var outside string
	err := error(&keyfunc.Error{Status: http.StatusBadRequest, Err: keyfunc.ErrMissing, Detail: "The messageId is missing."})
	if !o.onlyBody {
		outside, err = valueOf(f, r)
	}
	key, wrong := c.Key(o.keys)
	missing := errors.Is(err, keyfunc.ErrMissing)
	switch {
	case wrong != nil:
		return "", rpcError(wrong)
	case err == nil && key != "" && key != outside:
		return "", rpcError(jsonrpc.ErrTwoPaths)
	case err == nil:
		key = outside
	case missing && key == "" && o.keyless != nil && o.keyless(c.Tool):
		return "", keyfunc.ErrSkip
	case missing && key == "":
		if own, ok := errors.AsType[*keyfunc.Error](err); ok && own.Detail != "" { // for clients that can set no header
			with := *own
			with.Detail += " A key can be at " + o.places + "."
			err = &with
		}
		return "", err
	case key == "" || !missing && !errors.Is(err, keyfunc.ErrSkip):
		return "", err
	}
	return string(record.AppendText(record.AppendText(nil, c.Method), c.Tool)) + key, nil
}

// outcome returns the receipt of an answer to the call with this id, or an unknown outcome in its place if the answer
// ended without a response: so does a server of MCP when the session ends, whatever its tool has done. kept is false
// for a refusal that is no response: the server has not read the call.
func (*rpc) outcome(receipt, id []byte) (_ []byte, kept bool) {
	rec, err := record.Read(receipt)
	if err != nil || rec.Tombstone || rec.Pending {
		return receipt, true
	}
	if rec.Status/100 == 4 {
		var response struct{ ID json.RawMessage }
		return receipt, json.Unmarshal(rec.Body, &response) == nil && bytes.Equal(response.ID, id)
	}
	if _, answered := jsonrpc.Readdress(rec.ContentType(), rec.Body, nil); rec.Status == http.StatusOK && !answered {
		return []byte(record.Unknown), true
	}
	return receipt, true
}

func (o *rpc) refuse(w http.ResponseWriter, r *http.Request, p *Problem) {
	status := p.status()
	if o.status != nil {
		status = o.status(p)
	}
	id := []byte("null")
	switch c, err := readCall(r, setting.DefaultBodyLimit); {
	case err == nil && c.ID == nil: // a notification has no response
		w.WriteHeader(status)
		return
	case err == nil:
		id = c.ID
	}
	type data struct {
		Type       string `json:"type,omitempty"`
		Code       string `json:"code"`
		Content    string `json:"content"`
		RetryAfter int64  `json:"retry_after,omitempty"`
	}
	text, _ := json.Marshal(struct { // of texts and numbers
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    data   `json:"data"`
	}{rpcCode(p), strings.TrimSpace(p.text() + " " + p.next()), data{p.Type, p.code(), p.text(), p.retrySeconds()}})
	w.Header()["Content-Type"] = []string{"application/json"}
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, id, text)
}

func rpcCode(p *Problem) int {
	switch {
	case errors.Is(p.Err, jsonrpc.ErrBatch), errors.Is(p.Err, jsonrpc.ErrInvalid):
		return -32600
	case p.Kind() == ProblemKeyMissing, errors.Is(p.Err, jsonrpc.ErrNoKey), errors.Is(p.Err, jsonrpc.ErrTwoPaths):
		return -32602
	case p.Kind() == ProblemKeyInvalid:
		return -32700
	}
	return -32000
}
