package middleware

import (
	"strings"
	"time"

	"github.com/httplatch/httplatch/middleware/internal/refusal"
)

// ProblemKind is the case of a [Problem]: the last part of its Type, and the name of its
// section in https://github.com/httplatch/httplatch/blob/main/docs/problems.md, which says
// what the client and the operator can do. All are stable.
type ProblemKind string

// The kinds of the refusals of this package.
const (
	ProblemHeld                ProblemKind = "held"                  // another request has the key of [Lock]
	ProblemCoolingDown         ProblemKind = "cooling-down"          // [WithCooldown]
	ProblemKeyMissing          ProblemKind = "key-missing"           // [keyfunc.ErrMissing]
	ProblemKeyInvalid          ProblemKind = "key-invalid"           // a [keyfunc.Error] with 400
	ProblemKeyNotSupported     ProblemKind = "key-not-supported"     // [Refuse]
	ProblemUnauthenticated     ProblemKind = "unauthenticated"       // a [keyfunc.Error] with 401
	ProblemBodyTooLarge        ProblemKind = "body-too-large"        // [WithBodyLimits], [WithBodyFirst]
	ProblemBodyUnreadable      ProblemKind = "body-unreadable"       // the body ended too early
	ProblemBodyConsumed        ProblemKind = "body-consumed"         // it was read outside the guard
	ProblemKeyFailed           ProblemKind = "key-failed"            // a key function failed
	ProblemInProgress          ProblemKind = "in-progress"           // the first request is in flight
	ProblemKeyReused           ProblemKind = "key-reused"            // the fingerprints differ
	ProblemFirstFailed         ProblemKind = "first-failed"          // the request waited for one that failed
	ProblemOutcomeUnknown      ProblemKind = "outcome-unknown"       // [lock.ErrAbandoned], [lock.ErrLost], [Upstream]
	ProblemResultNotReplayable ProblemKind = "result-not-replayable" // it was processed, and the answer not kept
	ProblemRolledBack          ProblemKind = "rolled-back"           // its transaction was rolled back
	ProblemUnconfirmed         ProblemKind = "unconfirmed"           // COMMIT was not answered
	ProblemUnavailable         ProblemKind = "unavailable"           // the store did not answer
	ProblemShuttingDown        ProblemKind = "shutting-down"         // [lock.ErrClosed]
)

// Kind returns the kind of p, "" for a Type of another package.
func (p *Problem) Kind() ProblemKind {
	name, ok := strings.CutPrefix(p.Type, refusal.KindBase)
	if !ok {
		return ""
	}
	return ProblemKind(name)
}

// titles have one fixed sentence a kind, which must be true for every guard: behind
// [Dedupe] the client has sent no key.
var titles = map[ProblemKind]string{
	ProblemHeld:                "Another request for the same thing is still being processed.",
	ProblemCoolingDown:         "A request for the same thing was answered a moment ago.",
	ProblemKeyMissing:          "The request lacks the value that says which requests are the same.",
	ProblemKeyInvalid:          "The value that says which requests are the same is malformed.",
	ProblemKeyNotSupported:     "The request has an Idempotency-Key, which is not supported here, so it was not processed.",
	ProblemUnauthenticated:     "The request does not say whose it is.",
	ProblemBodyTooLarge:        "The request body is too large.",
	ProblemBodyUnreadable:      "The request body could not be read to its end.",
	ProblemBodyConsumed:        "The server could not read the request body any more, and did not process the request.",
	ProblemKeyFailed:           "The server could not find out which requests are the same, and did not process this one.",
	ProblemInProgress:          "The same request was sent before, and is still being processed.",
	ProblemKeyReused:           "The key was used for a different request.",
	ProblemFirstFailed:         "The same request was sent before and failed, and its answer cannot be sent again.",
	ProblemOutcomeUnknown:      "The same request was sent before and did not finish, and it is not known whether it had an effect.",
	ProblemResultNotReplayable: "The request was processed, but its answer cannot be sent again.",
	ProblemRolledBack:          "The request was processed, but could not be completed, and nothing of it was kept.",
	ProblemUnconfirmed:         "The request was processed, and the database has not confirmed yet whether it took effect.",
	ProblemUnavailable:         "Duplicates cannot be excluded at the moment, so the request was not processed.",
	ProblemShuttingDown:        "The server is shutting down and did not process the request.",
}

func (k ProblemKind) problem(status int, retryAfter time.Duration, err error) *Problem {
	return &Problem{Status: status, Type: refusal.KindBase + string(k), Title: titles[k], RetryAfter: retryAfter, Err: err}
}
