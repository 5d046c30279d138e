package rpc

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
)

// Code is a status code, which has the same number in gRPC and in Connect.
type Code uint32

// The codes of this package.
const (
	Canceled           Code = 1
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	AlreadyExists      Code = 6
	Aborted            Code = 10
	FailedPrecondition Code = 9
	OutOfRange         Code = 11
	Unimplemented      Code = 12
	Internal           Code = 13
	Unavailable        Code = 14
	Unauthenticated    Code = 16
)

// Domain is the domain of the details of a refusal (google.rpc.ErrorInfo).
const Domain = "github.com/httplatch/httplatch"

// Refusal is the answer to a call that has not run, or whose outcome is not known.
type Refusal struct { //nolint:errname // it is the term of docs/grpc.md
	Code  Code
	Kind  string // of docs/problems.md; "" if the caller has left
	Text  string
	Retry time.Duration // 0: a client must not send the call again by itself
}

func (r *Refusal) Error() string { return r.Text }

// Reason is the kind in the spelling of AIP-193.
func (r *Refusal) Reason() string {
	return strings.ToUpper(strings.ReplaceAll(r.Kind, "-", "_"))
}

// A refused call with Retry is sent again by clients, and by the retry policy of gRPC, with the same
// key. The table of docs/grpc.md has also kinds of package middleware.
var refusals = map[string]Refusal{
	"key-missing":           {Code: InvalidArgument, Text: "The call lacks the key that says which calls are the same."},
	"key-invalid":           {Code: InvalidArgument, Text: "The key that says which calls are the same is malformed."},
	"key-reused":            {Code: InvalidArgument, Text: "The key was used for a different call."},
	"unauthenticated":       {Code: Unauthenticated, Text: "The call does not say whose it is."},
	"key-not-supported":     {Code: Unimplemented, Text: "Streams are not run once."},
	"key-failed":            {Code: Internal, Text: "The server could not find out which calls are the same, and did not process this one."},
	"held":                  {Code: Aborted, Text: "Another call for the same thing is still being processed."},
	"cooling-down":          {Code: Aborted, Text: "A call for the same thing was made a moment ago, and none can be made yet."},
	"outcome-unknown":       {Code: FailedPrecondition, Text: "The same call was sent before and did not finish, and it is not known whether it had an effect."},
	"result-not-replayable": {Code: FailedPrecondition, Text: "The call was processed, but its response cannot be sent again."},
	"in-progress":           {Code: Unavailable, Text: "The same call was sent before, and is still being processed.", Retry: time.Second},
	"first-failed":          {Code: Unavailable, Text: "The same call was sent before and failed, and its error cannot be sent again.", Retry: time.Second},
	"rolled-back":           {Code: Unavailable, Text: "The call was processed, but could not be completed, and nothing of it was kept.", Retry: time.Second},
	"unconfirmed":           {Code: Unavailable, Text: "The call was processed, and the database has not confirmed yet whether it took effect.", Retry: time.Second},
	"unavailable":           {Code: Unavailable, Text: "Duplicates cannot be excluded at the moment, so this attempt was not processed.", Retry: time.Second},
	"shutting-down":         {Code: Unavailable, Text: "The server is shutting down and did not process the call.", Retry: time.Second},
}

// Refuse returns the refusal of a kind.
func Refuse(kind string) *Refusal {
	r, known := refusals[kind]
	if !known {
		r = refusals["key-failed"] // without a code, the refusal would be a success
	}
	r.Kind = kind
	return &r
}

// KeyOf returns the key of a call, from the result of a key function, or whether the call passes. Other errors than
// a refusal are logged, unless they are answers of the protocol: own.
func KeyOf(ctx context.Context, l *lock.Locker, id string, err error, own bool) (key string, passes bool, _ error) {
	refused, isRefused := errors.AsType[*keyfunc.Error](err)
	switch {
	case errors.Is(err, keyfunc.ErrSkip):
		return "", true, nil
	case errors.Is(err, keyfunc.ErrMissing), err == nil && id == "":
		return "", false, Refuse("key-missing")
	case isRefused && refused.Status == http.StatusUnauthorized:
		return "", false, Refuse("unauthenticated")
	case isRefused:
		return "", false, Refuse("key-invalid")
	case err != nil && !own:
		l.Logger().ErrorContext(ctx, "the key function of a call failed", "error", err)
		return "", false, Refuse("key-failed")
	}
	return id, false, err
}

// refusalOf returns the refusal for an error of a Locker. ran says that the handler has run.
func refusalOf(ctx context.Context, err error, ran bool) *Refusal {
	switch {
	case errors.Is(err, lock.ErrMismatch):
		return Refuse("key-reused")
	case errors.Is(err, lock.ErrAbandoned), errors.Is(err, lock.ErrLost):
		return Refuse("outcome-unknown")
	case ran && errors.Is(err, lock.ErrUnknown):
		return Refuse("unconfirmed")
	case ran && errors.Is(err, lock.ErrUnavailable):
		return Refuse("rolled-back")
	case ran: // the transaction cannot be committed
		r := Refuse("rolled-back")
		r.Code, r.Retry = Internal, 0
		return r
	case errors.Is(ctx.Err(), context.Canceled):
		return &Refusal{Code: Canceled, Text: "The caller has left."}
	case ctx.Err() != nil:
		return &Refusal{Code: DeadlineExceeded, Text: "The deadline of the call is over."}
	case errors.Is(err, lock.ErrHeld):
		return Refuse("in-progress")
	case errors.Is(err, lock.ErrSettled): // of a lock
		return Refuse("cooling-down")
	case errors.Is(err, lock.ErrClosed):
		return Refuse("shutting-down")
	default:
		return Refuse("unavailable")
	}
}
