package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
)

// verdict says whether an attempt allows another one, apart from the limits.
type verdict struct {
	again    bool
	inFlight bool   // the first request is in flight: only time limits the repeats
	kind     string // of the problem
	reason   string
}

func final(reason string) verdict      { return verdict{reason: reason} }
func repeatable(reason string) verdict { return verdict{again: true, reason: reason} }

// reaction is a client's reaction to a kind of problem.
type reaction int

const (
	stop  reaction = iota + 1 // the same request again would be wrong, or refused again
	retry                     // the request did not run, or has no effect, or its repeat gets the first answer
	wait                      // the first request with the key is under way
)

// reactions follows docs/problems.md.
var reactions = map[string]reaction{
	"held":                  stop, // another submission
	"cooling-down":          stop, // an earlier submission succeeded: this one may be its double click
	"key-missing":           stop,
	"key-invalid":           stop,
	"key-not-supported":     stop, // nothing keeps a repeat from a second effect there
	"unauthenticated":       stop,
	"body-too-large":        stop,
	"body-unreadable":       retry, // the body was cut off on its way
	"body-consumed":         stop,
	"key-failed":            retry,
	"in-progress":           wait,
	"first-failed":          retry,
	"key-reused":            stop,
	"outcome-unknown":       stop,
	"result-not-replayable": stop,
	"rolled-back":           retry, // with 500: stop
	"unconfirmed":           retry,
	"unavailable":           retry,
	"shutting-down":         retry,
}

// judge decides what follows an attempt with this method. keyed says whether the request had a
// key. At least one of resp and err is not nil; both are set if the answer broke off. p is the
// problem in resp, or nil.
func judge(ctx context.Context, method string, keyed bool, resp *http.Response, p *Problem, err error) verdict {
	v := judgeOutcome(ctx, resp, p, err)
	if p != nil {
		v.kind = p.Kind()
	}
	if v.again && !keyed && !idempotent(method) {
		v.again, v.reason = false, "it has no key, and its method may have another effect"
	}
	return v
}

func judgeOutcome(ctx context.Context, resp *http.Response, p *Problem, err error) verdict {
	switch {
	case err != nil && ctx.Err() != nil:
		return final("the context has ended")
	case err != nil && permanent(err):
		return final("the error would come again")
	case err != nil:
		return repeatable("the connection failed")
	case resp.StatusCode < http.StatusBadRequest:
		return final("it was answered")
	}
	if p != nil {
		if v, ok := judgeProblem(p); ok {
			return v
		}
	}
	switch resp.Header.Get("Stripe-Should-Retry") {
	case "true":
		return repeatable("Stripe-Should-Retry: true")
	case "false":
		return final("Stripe-Should-Retry: false")
	}
	if retriedStatus(resp.StatusCode) {
		return repeatable("the server asks for it by its status")
	}
	return final("its status is final")
}

func judgeProblem(p *Problem) (v verdict, ok bool) {
	kind := p.Kind()
	switch reactions[kind] {
	case wait:
		return verdict{again: true, inFlight: true, reason: kind}, true
	case retry:
		if kind == "rolled-back" && p.Status != http.StatusServiceUnavailable {
			return final(kind), true
		}
		return repeatable(kind), true
	case stop:
		return final(kind), true
	}
	return verdict{}, false
}

// retriedStatus reports whether an answer says that the request was not processed, or comes from a
// proxy that does not know whether it was.
func retriedStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// permanent reports whether err concerns the request or the server's identity, and not the
// connection.
func permanent(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[finalError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	// A header or a method that cannot be sent: net/http has no error type for it.
	return strings.HasPrefix(err.Error(), "net/http: invalid ")
}
