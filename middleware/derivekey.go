package middleware

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/httplatch/httplatch/internal/submission"
	"github.com/httplatch/httplatch/middleware/internal/identity"
)

// Key returns the identity of the submission that the handler of ctx serves under [Idempotent]: 43 characters of A-Z,
// a-z, 0-9, "-" and "_". It is the same in each run for the submission and in each process, and different for any
// other scope, method, path or key. It can be the ID of a row. It is a hash without a secret, which a client can
// compute: use a key of [DeriveKey] for calls to other services.
//
// ok is false outside of Idempotent, under [Dedupe], whose requests have no key, and in a run without the store
// ([WithFailOpen]) unless the guard has [WithKeySecret]. It is safe for concurrent use.
func Key(ctx context.Context) (key string, ok bool) {
	s := submission.Of(ctx)
	if s == nil || s.ID == "" {
		return "", false
	}
	return strings.TrimPrefix(s.ID, identity.Idempotent+"="), true
}

// DeriveKey returns the idempotency key of a call that the handler of ctx makes to another service. It is the same in
// each run for the submission ([Key]) and in each process with the same [WithKeySecret], and different for each name.
// So a handler that runs again after a failure or a crash makes its calls with the same keys, and a service that runs
// each key once has one effect. client.Transport of this module uses such keys with client.Step:
//
//	key, err := latch.DeriveKey(ctx, "charge")
//
// A name stands for one call. The receiver takes two calls with one name for the same call, so in a loop, put the
// number of the item into the name: "refund/7". Neither the name nor the content of the call may change between the
// runs: derive the content from the request. A key has 32 characters of A-Z and 2-7. Without the secret it cannot be
// computed or guessed, even from other derived keys.
//
// It fails if name is empty, if the guard has no secret, and outside of [Idempotent], also for a request that
// [keyfunc.Optional] lets pass. It fails under [Dedupe], too: the same request after the window is another
// submission, and would get the same key. It is safe for concurrent use.
func DeriveKey(ctx context.Context, name string) (string, error) {
	s := submission.Of(ctx)
	if s == nil {
		return "", errors.New("middleware.DeriveKey: the context is not of a handler under Idempotent")
	}
	key, err := s.Derive(name)
	if err != nil {
		return "", fmt.Errorf("middleware.DeriveKey: %w", err)
	}
	return key, nil
}

// WithKeySecret sets the secret of the keys that handlers under [Idempotent] derive for their calls ([DeriveKey]).
// Without it, no key can be derived. Other guards ignore it, so that it can be in the defaults of an application
// ([With]).
//
// All processes of a service need the same secret of random bytes, and each service its own secret. Keep it outside
// of the store: it must outlive the records. After a change of the secret, a handler that runs again makes its calls
// with other keys. So change it only while no client repeats a failed request. WithKeySecret panics if secret has
// less than 16 bytes.
func WithKeySecret(secret []byte) Option {
	mustNot(len(secret) < 16, "WithKeySecret: a secret has at least 16 bytes, from a random source")
	secret = bytes.Clone(secret)
	return option(func(c *config) { c.secret = secret })
}
