package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestIdempotentSpec drives every refusal. Each row starts from a fresh store.
func TestIdempotentSpec(t *testing.T) {
	t.Parallel()
	answers := func(entry lock.Entry, err error) func(context.Context, string, lock.Claim) (lock.Entry, error) {
		return func(_ context.Context, _ string, c lock.Claim) (lock.Entry, error) {
			if entry.Fingerprint == nil {
				entry.Fingerprint = c.Fingerprint
			}
			return entry, err
		}
	}
	settled := func(receipt string) func(context.Context, string, lock.Claim) (lock.Entry, error) {
		return answers(lock.Entry{State: lock.Settled, Token: "t", Receipt: []byte(receipt)}, nil)
	}
	fails := func(err error) keyfunc.Func {
		return func(*http.Request) (string, error) { return "", err }
	}
	otherVersion := func(state lock.State) func(context.Context, string, lock.Claim) (lock.Entry, error) {
		return answers(lock.Entry{State: state, Token: "t", Fingerprint: []byte("\xffanother way")}, nil)
	}
	inProgress := wantProblem{status: 409, kind: "in-progress", retryAfter: "1"}
	unavailable := wantProblem{status: 503, kind: "unavailable", retryAfter: "1"}
	unknown := wantProblem{status: 409, kind: "outcome-unknown"}
	notReplayable := wantProblem{status: 409, kind: "result-not-replayable"}
	reused := wantProblem{status: 422, kind: "key-reused"}

	tests := []struct {
		name       string
		claim      func(context.Context, string, lock.Claim) (lock.Entry, error) // memory unless set
		scope, key keyfunc.Func
		body       io.Reader
		opts       []latch.IdempotentOption
		closed     bool
		want       wantProblem
	}{
		{name: "held", claim: answers(lock.Entry{State: lock.Held, Token: "t", Left: time.Minute}, nil), want: inProgress},
		{name: "held for a different request", claim: answers(lock.Entry{State: lock.Held, Token: "t", Fingerprint: []byte("\x01other")}, nil), want: reused},
		{name: "abandoned", claim: answers(lock.Entry{State: lock.Abandoned, Token: "t", Left: time.Hour}, nil), want: unknown},
		{name: "abandoned by a different request", claim: answers(lock.Entry{State: lock.Abandoned, Token: "t", Fingerprint: []byte("\x01other")}, nil), want: reused},
		{name: "settled for a different request", claim: answers(lock.Entry{State: lock.Settled, Token: "t", Fingerprint: []byte("\x01other")}, nil), want: reused},
		{name: "held, fingerprint of another version", claim: otherVersion(lock.Held), want: inProgress},
		{name: "abandoned, fingerprint of another version", claim: otherVersion(lock.Abandoned), want: unknown},
		{name: "settled, fingerprint of another version", claim: otherVersion(lock.Settled), want: notReplayable},
		{name: "empty receipt", claim: settled(""), want: notReplayable},
		{name: "record of another version", claim: settled("\x02\x00\x00\xc8ok\x00\x00\x00\x00"), want: notReplayable},
		{name: "record with unknown flags", claim: settled("\x01\x80\x00\xc8ok\x00\x00\x00\x00"), want: notReplayable},
		{name: "damaged record", claim: settled("\x01\x00\x00\xc8ok\xff\xff\xff\xff"), want: notReplayable},
		{name: "store certainly did nothing", claim: answers(lock.Entry{}, lock.ErrNotApplied), want: unavailable},
		{name: "outcome of the claim unknown", claim: answers(lock.Entry{}, errors.New(secret)), want: unavailable},
		{name: "store full", claim: answers(lock.Entry{}, lock.ErrFull), want: unavailable},
		{name: "closed", closed: true, want: wantProblem{status: 503, kind: "shutting-down", retryAfter: "1", connection: "close"}},
		{name: "closed, failing open", closed: true, opts: []latch.IdempotentOption{latch.WithFailOpen()}, want: wantProblem{status: 503, kind: "shutting-down", retryAfter: "1", connection: "close"}},
		{name: "no scope", scope: keyfunc.Header("X-Absent"), want: wantProblem{status: 400, kind: "key-missing"}},
		{name: "empty scope without error", scope: func(*http.Request) (string, error) { return "", nil }, want: wantProblem{status: 400, kind: "key-missing"}},
		{name: "no user is authenticated", scope: keyfunc.Context(func(context.Context) string { return "" }), want: wantProblem{status: 401, kind: "unauthenticated"}},
		{name: "empty key without error", key: func(*http.Request) (string, error) { return "", nil }, want: wantProblem{status: 400, kind: "key-missing"}},
		{name: "plain error", key: fails(errors.New(secret)), want: wantProblem{status: 500, kind: "key-failed"}},
		{name: "own status", key: fails(&keyfunc.Error{Status: 403, Err: errors.New(secret)}), want: wantProblem{status: 403}},
		{name: "fingerprint is missing", opts: []latch.IdempotentOption{latch.WithFingerprint(keyfunc.JSON("/absent"))}, want: wantProblem{status: 400, kind: "key-missing"}},
		{name: "fingerprint is empty", opts: []latch.IdempotentOption{latch.WithFingerprint(func(*http.Request) (string, error) { return "", nil })}, want: wantProblem{status: 400, kind: "key-missing"}},
		{name: "body over the limit", body: strings.NewReader("12345"), opts: []latch.IdempotentOption{latch.WithBodyLimits(4, 1)}, want: wantProblem{status: 413, kind: "body-too-large"}},
		{name: "body over the default limit", body: bytes.NewReader(make([]byte, 1<<20+1)), want: wantProblem{status: 413, kind: "body-too-large"}},
		{name: "body over the limit, length unknown", body: io.MultiReader(strings.NewReader("12345")), opts: []latch.IdempotentOption{latch.WithBodyLimits(4, 1)}, want: wantProblem{status: 413, kind: "body-too-large"}},
		{name: "body that breaks off", body: io.MultiReader(strings.NewReader("1"), broken{}), want: wantProblem{status: 400, kind: "body-unreadable"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				claims := 0
				memory := memstore.New()
				store := &stubStore{Store: memory, OnClaim: func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
					claims++
					if tt.claim != nil {
						return tt.claim(ctx, key, c)
					}
					return memory.Claim(ctx, key, c)
				}}
				l := lock.New(store)
				t.Cleanup(func() { end(l) })
				if tt.closed {
					requireCloses(t, l)
				}
				scope, key := tt.scope, tt.key
				if scope == nil {
					scope = byUser
				}
				if key == nil {
					key = keyfunc.IdempotencyKey
				}
				r := keyed("k")
				if tt.body != nil {
					r = httptest.NewRequest(http.MethodPost, "/orders", tt.body)
					r.Header = keyed("k").Header
				}
				var problem *latch.Problem
				opts := append(slices.Clip(tt.opts), latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
					problem = p
					p.ServeHTTP(w, r)
				}))
				w := serve(latch.Idempotent(l, scope, key, opts...)(mustNotRun(t)), r)
				requireProblem(t, tt.want, w)
				require.Error(t, problem.Err)
				require.NotContains(t, w.Body.String(), secret)
				if tt.claim == nil {
					require.Zero(t, claims, "nothing was claimed")
				}
			})
		})
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestIdempotentFailOpen: without a store the handler runs unguarded.
func TestIdempotentFailOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var events eventLog
		store := &stubStore{Store: memstore.New(), OnClaim: func(context.Context, string, lock.Claim) (lock.Entry, error) {
			return lock.Entry{}, lock.ErrNotApplied
		}}
		l := lock.New(store, lock.WithObserver(events.observe))
		t.Cleanup(func() { end(l) })
		var e effects
		guard := once(l, latch.WithFailOpen())
		h := guard(e.then(func(w http.ResponseWriter, r *http.Request) {
			require.Zero(t, lock.Attempt(r.Context()))
			requireProblem(t, wantProblem{status: 409, kind: "in-progress", retryAfter: "1"}, serve(guard(mustNotRun(t)), keyed("k")))
			_, _ = io.Copy(w, r.Body)
		}))
		for range 2 {
			require.Equal(t, `{"sku":"x"}`, serve(h, keyed("k")).Body.String())
		}
		e.require(t, 2)
		require.Equal(t, 2, events.count(lock.EventBypassed))
		requireCloses(t, l)
	})
}

// TestIdempotentFailOpenIsNotInherited: a guard further in that has not asked for it
// does not run its handler because the one around it has.
func TestIdempotentFailOpenIsNotInherited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		up, down := lock.New(memstore.New()), lock.New(&stubStore{OnClaim: func(context.Context, string, lock.Claim) (lock.Entry, error) {
			return lock.Entry{}, lock.ErrNotApplied
		}})
		h := once(up, latch.WithFailOpen())(once(down)(mustNotRun(t)))
		requireProblem(t, wantProblem{status: 503, kind: "unavailable", retryAfter: "1"}, serve(h, keyed("k")))
		requireCloses(t, up)
		requireCloses(t, down)
	})
}
