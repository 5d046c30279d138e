package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

const secret = "a text that only logs may show"

// answeringClaims returns a store with this answer to each claim, whose fingerprint is the request's unless set.
func answeringClaims(entry lock.Entry, err error) lock.Store {
	return &stubStore{Store: memstore.New(), OnClaim: func(_ context.Context, _ string, c lock.Claim) (lock.Entry, error) {
		e := entry
		if e.Fingerprint == nil {
			e.Fingerprint = c.Fingerprint
		}
		return e, err
	}}
}

// TestRefusals has the refusals that no row of docs/evidence/semantics.md has.
func TestRefusals(t *testing.T) {
	t.Parallel()
	type guard = func(l *lock.Locker) func(http.Handler) http.Handler
	locks := func(key keyfunc.Func, opts ...latch.LockOption) guard {
		return func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Lock(l, "user", key, opts...) }
	}
	onceBy := func(scope, key keyfunc.Func, opts ...latch.IdempotentOption) guard {
		return func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Idempotent(l, scope, key, opts...) }
	}
	fails := func(err error) keyfunc.Func { return func(*http.Request) (string, error) { return "", err } }
	says := func(status int) keyfunc.Func { return fails(&keyfunc.Error{Status: status, Err: errors.New(secret)}) }
	user, byKey, empty := locks(byUser), keyfunc.Func(keyfunc.IdempotencyKey), fails(nil)
	held := answeringClaims(lock.Entry{State: lock.Held, Token: "t", Left: 30 * time.Second}, nil)
	cools := func(left time.Duration) lock.Store {
		return answeringClaims(lock.Entry{State: lock.Settled, Token: "t", Left: left}, nil)
	}
	receipt := func(text string) lock.Store {
		return answeringClaims(lock.Entry{State: lock.Settled, Token: "t", Receipt: []byte(text)}, nil)
	}
	otherVersion := func(state lock.State) lock.Store {
		return answeringClaims(lock.Entry{State: state, Token: "t", Fingerprint: []byte("\xffanother way")}, nil)
	}
	fingerprint := func(f keyfunc.Func) guard { return onceBy(byUser, byKey, latch.WithFingerprint(f)) }
	inUse := wantProblem{status: 409, kind: "held", retryAfter: "1"}
	unavailable := wantProblem{status: 503, kind: "unavailable", retryAfter: "1"}
	missing, invalid := wantProblem{status: 400, kind: "key-missing"}, wantProblem{status: 400, kind: "key-invalid"}
	notReplayable := wantProblem{status: 409, kind: "result-not-replayable"}
	cooling := func(seconds string) wantProblem { return wantProblem{429, "cooling-down", seconds, ""} }
	for name, tt := range map[string]struct {
		store lock.Store // nil: nothing is claimed
		guard guard
		want  wantProblem
	}{
		"Lock, a long lease of another process":  {held, user, inUse},
		"Lock, abandoned":                        {answeringClaims(lock.Entry{State: lock.Abandoned, Token: "t", Left: time.Hour}, nil), user, inUse},
		"Lock, held although it may fail open":   {held, locks(byUser, latch.WithFailOpen()), inUse},
		"Lock, cools down for a second begun":    {cools(2001 * time.Millisecond), user, cooling("3")},
		"Lock, cools down for whole seconds":     {cools(2 * time.Second), user, cooling("2")},
		"Lock, cools down for a moment":          {cools(time.Millisecond), user, cooling("1")},
		"Lock, cools down, time left not known":  {cools(0), locks(byUser, latch.WithContentionStatus(423)), cooling("1")},
		"Lock, empty key without error":          {nil, locks(empty), missing},
		"Lock, empty key, failing open":          {nil, locks(empty, latch.WithFailOpen()), missing},
		"Lock, key function fails":               {nil, locks(fails(errors.New(secret))), wantProblem{status: 500, kind: "key-failed"}},
		"Lock, key function says 400":            {nil, locks(says(400)), invalid},
		"Lock, key function says 401":            {nil, locks(says(401)), wantProblem{status: 401, kind: "unauthenticated"}},
		"Lock, key function says 413":            {nil, locks(says(413)), wantProblem{status: 413, kind: "body-too-large"}},
		"Lock, key function says 403":            {nil, locks(says(403)), wantProblem{status: 403}},
		"Lock, key function says 200":            {nil, locks(says(200)), invalid},
		"Lock, store certainly did nothing":      {answeringClaims(lock.Entry{}, lock.ErrNotApplied), user, unavailable},
		"Lock, outcome of the claim unknown":     {answeringClaims(lock.Entry{}, errors.New(secret)), user, unavailable},
		"Lock, store full":                       {answeringClaims(lock.Entry{}, lock.ErrFull), user, unavailable},
		"Lock, store cannot, failing open":       {answeringClaims(lock.Entry{}, errors.ErrUnsupported), locks(byUser, latch.WithFailOpen()), unavailable},
		"Idempotent, held by another version":    {otherVersion(lock.Held), onceBy(byUser, byKey), wantProblem{status: 409, kind: "in-progress", retryAfter: "1"}},
		"Idempotent, abandoned by another":       {otherVersion(lock.Abandoned), onceBy(byUser, byKey), wantProblem{status: 409, kind: "outcome-unknown"}},
		"Idempotent, settled by another":         {otherVersion(lock.Settled), onceBy(byUser, byKey), notReplayable},
		"Idempotent, empty receipt":              {receipt(""), onceBy(byUser, byKey), notReplayable},
		"Idempotent, record of another version":  {receipt("\x02\x00\x00\xc8ok\x00\x00\x00\x00"), onceBy(byUser, byKey), notReplayable},
		"Idempotent, record with unknown flags":  {receipt("\x01\x80\x00\xc8ok\x00\x00\x00\x00"), onceBy(byUser, byKey), notReplayable},
		"Idempotent, damaged record":             {receipt("\x01\x00\x00\xc8ok\xff\xff\xff\xff"), onceBy(byUser, byKey), notReplayable},
		"Idempotent, outcome of the claim":       {answeringClaims(lock.Entry{}, errors.New(secret)), onceBy(byUser, byKey), unavailable},
		"Idempotent, empty scope without error":  {nil, onceBy(empty, byKey), missing},
		"Idempotent, empty key without error":    {nil, onceBy(byUser, empty), missing},
		"Idempotent, own status":                 {nil, onceBy(byUser, says(403)), wantProblem{status: 403}},
		"Idempotent, fingerprint is missing":     {nil, fingerprint(keyfunc.JSON("/absent")), missing},
		"Idempotent, fingerprint without a text": {nil, fingerprint(empty), missing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory, store := memstore.New(), tt.store
				if store == nil {
					store = memory
				}
				l := lock.New(store)
				defer end(l)
				w := serve(tt.guard(l)(mustNotRun(t)), keyed("k"))
				requireProblem(t, tt.want, w)
				require.NotContains(t, w.Body.String(), secret)
				requireEmpty(t, memory)
			})
		})
	}
}
