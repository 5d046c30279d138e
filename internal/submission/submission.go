// Package submission is the identity of a guarded request. A guard of package middleware puts
// it into the context of its handler, and package client, which does not import the guards,
// finds it there.
package submission

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"errors"
)

// ContextKey is the key of a [Submission] in a context.
type ContextKey struct{}

// Submission is the request that a handler serves, the same in each of its attempts.
type Submission struct {
	ID     string // "": the requests of the guard have no key
	Secret []byte // of the guard; nil if it has none
}

// Of returns the submission of the innermost guard around ctx, nil if there is none.
func Of(ctx context.Context) *Submission {
	s, _ := ctx.Value(ContextKey{}).(*Submission)
	return s
}

// IntentKey is the key of the intent of a request in a context: a [StepName], or a type of package client.
type IntentKey struct{}

// StepName is the name from which the key of a request is derived.
type StepName string

// WithStep returns a context whose request has the key that is derived from name.
func WithStep(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, IntentKey{}, StepName(name))
}

var (
	errNoName   = errors.New("the call has no name; give it one that no other call of the handler has")
	errNoID     = errors.New("the requests of Dedupe have no key to derive one from; use Idempotent, or a key of your own")
	errNoSecret = errors.New("the guard has no secret; give it one with WithKeySecret")
)

// size is the number of bytes of a derived key before it is written in base 32. It needs no
// padding, and 32 characters are short enough for every provider whose limit is known.
const size = 20

// Derive returns the key of the call with this name.
func (s *Submission) Derive(name string) (string, error) {
	switch {
	case name == "":
		return "", errNoName
	case s.ID == "":
		return "", errNoID
	case s.Secret == nil:
		return "", errNoSecret
	}
	// An id has no zero byte, so the text ends where the name begins.
	mac := hmac.New(sha256.New, s.Secret)
	mac.Write([]byte(s.ID + "\x00" + name))
	return base32.StdEncoding.EncodeToString(mac.Sum(nil)[:size]), nil
}
