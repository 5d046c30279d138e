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

// repeats has each kind of problem, and whether the same request is sent again. Written by TestGoldenKinds of package middleware.
var repeats = map[string]bool{
	"held":                  false,
	"cooling-down":          false,
	"key-missing":           false,
	"key-invalid":           false,
	"key-not-supported":     false,
	"unauthenticated":       false,
	"body-too-large":        false,
	"body-unreadable":       true,
	"body-consumed":         false,
	"key-failed":            true,
	"in-progress":           true,
	"key-reused":            false,
	"first-failed":          true,
	"outcome-unknown":       false,
	"result-not-replayable": false,
	"rolled-back":           true,
	"unconfirmed":           true,
	"unavailable":           true,
	"shutting-down":         true,
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
	again, ok := repeats[kind]
	if kind == "rolled-back" && p.Status != http.StatusServiceUnavailable {
		again = false
	}
	return verdict{again: again, inFlight: kind == "in-progress", reason: kind}, ok
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
