package policy_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/policy"
)

// The least that a lock and an idempotent guard are made of.
const (
	aLock        = `"kind": "lock", "name": "user", "key": "user"`
	anIdempotent = `"kind": "idempotent", "scope": "user", "key": "idempotency-key"`
)

// TestFieldsSetWhatTheOptionsSet plays one scene against a guard of a file
// and against the guard that code would make of the same words.
func TestFieldsSetWhatTheOptionsSet(t *testing.T) {
	t.Parallel()
	type guard = func(http.Handler) http.Handler
	inCode := func(l *lock.Locker, opts ...latch.IdempotentOption) guard {
		return latch.Idempotent(l, guardtest.ByUser, keyfunc.IdempotencyKey, opts...)
	}
	tests := []struct {
		fields string
		code   func(l *lock.Locker) guard
		plain  string // fields in addition to which it must make a difference
	}{
		{aLock + `, "cooldown": "3s"`, func(l *lock.Locker) guard {
			return latch.Lock(l, "user", guardtest.ByUser, latch.WithCooldown(3*time.Second))
		}, aLock},
		{aLock + `, "contention_status": 423`, func(l *lock.Locker) guard {
			return latch.Lock(l, "user", guardtest.ByUser, latch.WithContentionStatus(423))
		}, aLock},
		{aLock + `, "contract": "ucp"`, func(l *lock.Locker) guard { return latch.Lock(l, "user", guardtest.ByUser, latch.UCP()) }, aLock},
		{aLock + `, "contract": "ucp", "contention_status": 423`, func(l *lock.Locker) guard {
			return latch.Lock(l, "user", guardtest.ByUser, latch.UCP(), latch.WithContentionStatus(423))
		}, aLock + `, "contract": "ucp"`},
		{aLock + `, "cooldown": "3s", "cooldown_status": 409`, func(l *lock.Locker) guard {
			return latch.Lock(l, "user", guardtest.ByUser, latch.WithCooldown(3*time.Second), latch.WithCooldownStatus(409))
		}, aLock + `, "cooldown": "3s"`},
		{aLock + `, "body_first": 3`, func(l *lock.Locker) guard { return latch.Lock(l, "user", guardtest.ByUser, latch.WithBodyFirst(3)) }, aLock},
		{aLock + `, "wait": "10s"`, func(l *lock.Locker) guard {
			return latch.Lock(l.With(lock.WithWait(10*time.Second)), "user", guardtest.ByUser)
		}, aLock},
		{aLock + `, "lease": "2s", "max_hold": "3s"`, func(l *lock.Locker) guard {
			return latch.Lock(l.With(lock.WithLease(2*time.Second), lock.WithMaxHold(3*time.Second)), "user", guardtest.ByUser)
		}, aLock},
		{anIdempotent + `, "wait": "2s"`, func(l *lock.Locker) guard { return inCode(l.With(lock.WithWait(2 * time.Second))) }, anIdempotent},
		{anIdempotent + `, "wait": "0s"`, func(l *lock.Locker) guard { return inCode(l.With(lock.WithWait(0))) }, anIdempotent},
		{anIdempotent + `, "wait": "0s", "in_progress_status": 503`, func(l *lock.Locker) guard {
			return inCode(l.With(lock.WithWait(0)), latch.WithInProgressStatus(503))
		}, anIdempotent + `, "wait": "0s"`},
		{anIdempotent + `, "keep": "4s"`, func(l *lock.Locker) guard { return inCode(l.With(lock.WithKeep(4 * time.Second))) }, anIdempotent},
		{anIdempotent + `, "final_below": 300`, func(l *lock.Locker) guard {
			return inCode(l, latch.WithFinal(func(status int) bool { return status < 300 }))
		}, anIdempotent},
		{anIdempotent + `, "fingerprint": "global"`, func(l *lock.Locker) guard { return inCode(l, latch.WithFingerprint(keyfunc.Global)) }, anIdempotent},
		{anIdempotent + `, "contract": "acp"`, func(l *lock.Locker) guard { return inCode(l, latch.ACP()) }, anIdempotent},
		{anIdempotent + `, "contract": "ucp"`, func(l *lock.Locker) guard { return inCode(l, latch.UCP()) }, anIdempotent},
		{anIdempotent + `, "contract": "stripe"`, func(l *lock.Locker) guard { return inCode(l, latch.Stripe()) }, anIdempotent},
		{anIdempotent + `, "final_below": 300, "contract": "stripe"`, func(l *lock.Locker) guard {
			return inCode(l, latch.Stripe(), latch.WithFinal(func(status int) bool { return status < 300 }))
		}, anIdempotent + `, "contract": "stripe"`},
		{anIdempotent + `, "lifetime_header": true`, func(l *lock.Locker) guard { return inCode(l, latch.WithLifetimeHeader()) }, anIdempotent},
		{anIdempotent + `, "request_limit": 3`, func(l *lock.Locker) guard { return inCode(l, latch.WithBodyLimits(3, 1<<20)) }, anIdempotent},
		{anIdempotent + `, "response_limit": 3`, func(l *lock.Locker) guard { return inCode(l, latch.WithBodyLimits(1<<20, 3)) }, anIdempotent},
		{
			`"kind": "dedupe", "scope": "user", "window": "4s"`,
			func(l *lock.Locker) guard { return latch.Dedupe(l, guardtest.ByUser, 4*time.Second) },
			`"kind": "dedupe", "scope": "user", "window": "1s"`,
		},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			// Each guard has its own locker and store, or they would meet.
			fromFile := func(fields string) string {
				guards, err := load(t, `{"g": {`+fields+`}}`)
				require.NoError(t, err)
				return scene(guards.Get("g"))
			}
			got := fromFile(tt.fields)
			require.Equal(t, scene(tt.code(guardtest.NewLocker(t, memstore.New()))), got, tt.fields)
			require.NotEqual(t, fromFile(tt.plain), got, "the scene does not show what this does: %s", tt.fields)
		})
	}
}

// scene sends what each setting has something to say about, and returns what
// became of it.
func scene(guard func(http.Handler) http.Handler) string {
	var runs, lost atomic.Int32
	status, takes := http.StatusCreated, 5*time.Second
	h := guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		timer := time.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			lost.Add(1)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte("order"))
	}))
	send := func(body string) string {
		w := guardtest.Serve(h, guardtest.KeyedBody("k", body))
		return fmt.Sprint(w.Code, w.Header().Get("Idempotent-Replayed"), w.Header().Get("Idempotency-Key-Lifetime"), " ")
	}
	first := make(chan string)
	go func() { first <- send("tea") }()
	synctest.Wait()
	second := send("tea")
	answers := <-first + second + send("tea")
	time.Sleep(3500 * time.Millisecond)
	answers += send("tea") + send("coffee")
	time.Sleep(time.Hour)
	answers += send("tea")
	time.Sleep(24 * time.Hour)
	status, takes = http.StatusUnprocessableEntity, 0
	return answers + send("tea") + send("tea") + fmt.Sprintf("ran %d lost %d", runs.Load(), lost.Load())
}

func TestFailOpen(t *testing.T) {
	t.Parallel()
	open := []latch.Option{latch.WithFailOpen()}
	for _, kind := range []string{aLock, anIdempotent} {
		for _, tt := range []struct {
			fields string
			opts   []latch.Option
			want   int
		}{
			{``, nil, 503},
			{`, "fail_open": true`, nil, 201},
			{`, "fail_open": false`, nil, 503},
			{``, open, 201},
			{`, "fail_open": false`, open, 503},
		} {
			synctest.Test(t, func(t *testing.T) {
				var down atomic.Bool
				down.Store(true)
				l := guardtest.NewLocker(t, guardtest.FlakyStore(&down, lock.ErrNotApplied), lock.WithLogger(guardtest.Quiet))
				guards, err := policy.Load(strings.NewReader(`{"g": {`+kind+tt.fields+`}}`), l, offered, tt.opts...)
				require.NoError(t, err)
				require.Equal(t, tt.want, guardtest.Serve(guards.Get("g")(http.HandlerFunc(guardtest.Created)), guardtest.Keyed("k")).Code, "%s %s", kind, tt.fields)
			})
		}
	}
}

func TestRerunAbandoned(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]int{``: 409, `, "rerun_abandoned": true`: 201} {
		synctest.Test(t, func(t *testing.T) {
			memory := memstore.New()
			dying := &guardtest.MortalStore{Store: memory}
			dead, alive := lock.New(dying, lock.WithLogger(guardtest.Quiet)), lock.New(memory)
			t.Cleanup(func() { guardtest.End(dead); guardtest.End(alive) })
			guarded := func(l *lock.Locker, h http.HandlerFunc) http.Handler {
				guards, err := policy.Load(strings.NewReader(`{"g": {`+anIdempotent+fields+`}}`), l, offered)
				require.NoError(t, err)
				return guards.Get("g")(h)
			}
			guardtest.Serve(guarded(dead, func(w http.ResponseWriter, r *http.Request) {
				dying.Dead.Store(true)
				guardtest.Created(w, r)
			}), guardtest.Keyed("k"))
			time.Sleep(time.Minute)
			require.Equal(t, want, guardtest.Serve(guarded(alive, guardtest.Created), guardtest.Keyed("k")).Code, fields)
			time.Sleep(48 * time.Hour) // the dead one has nothing left to settle
		})
	}
}
