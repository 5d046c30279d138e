package middleware

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// ACP makes [Idempotent] answer as the Agentic Commerce Protocol demands (release of 2026-04-17, section 6 of its RFC
// of the checkout):
//
//	latch.Idempotent(l, keyfunc.Context(auth.Agent), keyfunc.IdempotencyKey, latch.ACP())
//
// docs/contracts.md lists the few requirements that are not met. ACP sets these options, which later ones override:
//
//   - [WithFingerprint] with the meaning of the JSON body ([keyfunc.CanonicalJSON]).
//   - [WithFinal] with all answers below 500. So mount authentication and rate limits outside: otherwise their
//     refusals would be kept.
//   - [WithErrorHandler] with the protocol's errors. ACP() sets it for a [Lock], too.
//   - Each answer has the key of the request in a header.
//   - An answer of 500 and above after [lock.Commit] is not replayed. The handler does not run again either: repeats
//     get 409 with result_not_replayable.
//
// The protocol demands a key of each POST, so do not use [keyfunc.Optional]. It demands 24 hours or more of
// [lock.WithKeep]: with less, Idempotent panics.
func ACP() Option {
	return option(func(c *config) {
		c.onError, c.contract, c.echo, c.fingerprint, c.answers.OnlyFinal = acpError, true, true, acpBody, true
		c.answers.Final = func(status int) bool { return status < http.StatusInternalServerError }
	})
}

// UCP makes [Idempotent] answer as the Universal Commerce Protocol demands ("Replay Protection" of its message
// signatures). docs/contracts.md lists the few requirements that are not met. A repeat with another body gets 409. If
// the store does not answer, requests get 503, even if the Locker fails open. Refusals are a JSON object with code
// and content. Bodies are compared byte by byte.
//
// A repeat that has waited for the first request in vain gets 503 with Retry-After ([WithInProgressStatus]), and one
// whose outcome is unknown or cannot be replayed gets 500. A [Lock] with UCP() refuses in the same way, with 503 for
// a key that is held. Later options override these. The protocol demands 24 hours of [lock.WithKeep], and recommends
// 48: with less than 24, Idempotent panics.
func UCP() Option {
	return option(func(c *config) {
		c.onError, c.contract, c.outage = ucpError, true, lock.WithFailClosed()
		c.inProgress, c.contention = http.StatusServiceUnavailable, http.StatusServiceUnavailable
	})
}

// Stripe makes [Idempotent] answer as Stripe's API does (version 1), for clients that know it: docs/payments.md
// compares its rules with ours. All answers are kept, even a 500, except 400, 401, 403 and 429. A repeat with another
// body gets 400 with idempotency_error. Refusals have the format of Stripe's errors. A panic that reaches the guard
// is not kept, so mount a middleware inside that turns it into an answer. Later options override these. Stripe's keys
// are optional ([keyfunc.Optional]), and kept for 24 hours or more: Idempotent panics if [lock.WithKeep] is shorter.
// A [Lock] with Stripe() refuses in this format.
func Stripe() Option {
	return option(func(c *config) {
		c.onError, c.contract = stripeError, true
		c.answers.Final = func(status int) bool {
			return status != http.StatusBadRequest && status != http.StatusUnauthorized && status != http.StatusForbidden && status != http.StatusTooManyRequests
		}
	})
}

// acpBody returns the meaning of the JSON body. A request to cancel has no body.
func acpBody(r *http.Request) (string, error) {
	if body, err := bodybuf.Content(r, setting.DefaultBodyLimit); err == nil && len(body) == 0 && !bodybuf.FormParsed(r) {
		return "no body", nil // no JSON begins like that
	}
	return keyfunc.CanonicalJSON(r)
}

type contractError struct {
	Type    string `json:"type"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func acpError(w http.ResponseWriter, _ *http.Request, p *Problem) {
	kind, code, message := "invalid_request", p.code(), p.text()
	switch is := p.Kind(); {
	case is == ProblemKeyMissing && strings.Contains(p.Detail, "Idempotency-Key"): // the key is missing, and not the scope
		code, message = "idempotency_key_required", "Idempotency-Key header is required on all POST requests"
	case is == ProblemKeyReused:
		code, message = "idempotency_conflict", "Idempotency-Key has already been used with a different request body"
	case is == ProblemInProgress:
		code, message = "idempotency_in_flight", "A request with this Idempotency-Key is currently being processed"
	case p.Status == http.StatusServiceUnavailable:
		kind = "service_unavailable"
	case is == ProblemOutcomeUnknown, is == ProblemResultNotReplayable, p.Status >= http.StatusInternalServerError:
		kind = "processing_error"
	}
	sendJSON(w, p.Status, contractError{kind, code, message})
}

func ucpError(w http.ResponseWriter, _ *http.Request, p *Problem) {
	sendJSON(w, ucpStatus(p), map[string]string{"code": p.code(), "content": p.text()})
}

func ucpStatus(p *Problem) int {
	switch is := p.Kind(); {
	case is == ProblemKeyReused:
		return http.StatusConflict
	case is != ProblemInProgress && p.Status == http.StatusConflict: // such as an unknown outcome: in the protocol, 409 means a different body
		return http.StatusInternalServerError
	}
	return p.Status
}

func stripeError(w http.ResponseWriter, _ *http.Request, p *Problem) {
	b, status := contractError{"invalid_request_error", p.code(), p.text()}, p.Status
	switch {
	case p.Kind() == ProblemKeyReused:
		status, b.Type = http.StatusBadRequest, "idempotency_error"
	case p.Kind() == ProblemInProgress:
		b.Code = "idempotency_key_in_use"
	case status >= http.StatusInternalServerError:
		b.Type = "api_error"
	}
	sendJSON(w, status, map[string]contractError{"error": b})
}

// code returns the kind of p as the codes of these contracts are spelled.
func (p *Problem) code() string { return spelled(cmp.Or(p.Kind(), "invalid")) }

func spelled(kind ProblemKind) string { return strings.ReplaceAll(string(kind), "-", "_") }

func (p *Problem) text() string { return cmp.Or(p.Detail, p.Title) }

// next returns the sentence that says what a program has to do, "" for a problem of the application.
func (p *Problem) next() string {
	if p.RetryAfter > 0 {
		return sendAgain + " after " + plural(p.retrySeconds(), "second") + "."
	}
	return kinds[p.Kind()].next
}

func sendJSON(w http.ResponseWriter, status int, v any) {
	w.Header()["Content-Type"] = []string{"application/json"}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the only cause of an error is a client that has gone away
}
