package policy_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
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
	once := func(set []lock.Option, opts ...latch.IdempotentOption) func(l *lock.Locker) guard {
		return func(l *lock.Locker) guard {
			return latch.Idempotent(l.With(set...), guardtest.ByUser, keyfunc.IdempotencyKey, opts...)
		}
	}
	locked := func(set []lock.Option, opts ...latch.LockOption) func(l *lock.Locker) guard {
		return func(l *lock.Locker) guard { return latch.Lock(l.With(set...), "user", guardtest.ByUser, opts...) }
	}
	dedupe := func(l *lock.Locker) guard { return latch.Dedupe(l, guardtest.ByUser, 4*time.Second) }
	set := func(opts ...lock.Option) []lock.Option { return opts }
	successes := latch.WithFinal(func(status int) bool { return status < 300 })
	for _, tt := range []struct {
		plain, added string // fields, and others that make a difference
		code         func(l *lock.Locker) guard
	}{
		{aLock, `, "cooldown": "3s"`, locked(nil, latch.WithCooldown(3*time.Second))},
		{aLock, `, "contention_status": 423`, locked(nil, latch.WithContentionStatus(423))},
		{aLock, `, "contract": "ucp"`, locked(nil, latch.UCP())},
		{aLock + `, "contract": "ucp"`, `, "contention_status": 423`, locked(nil, latch.UCP(), latch.WithContentionStatus(423))},
		{aLock + `, "cooldown": "3s"`, `, "cooldown_status": 409`, locked(nil, latch.WithCooldown(3*time.Second), latch.WithCooldownStatus(409))},
		{aLock, `, "body_first": 3`, locked(nil, latch.WithBodyFirst(3))},
		{aLock, `, "wait": "10s"`, locked(set(lock.WithWait(10 * time.Second)))},
		{aLock, `, "lease": "2s", "max_hold": "3s"`, locked(set(lock.WithLease(2*time.Second), lock.WithMaxHold(3*time.Second)))},
		{anIdempotent, `, "wait": "2s"`, once(set(lock.WithWait(2 * time.Second)))},
		{anIdempotent, `, "wait": "0s"`, once(set(lock.WithWait(0)))},
		{anIdempotent + `, "wait": "0s"`, `, "in_progress_status": 503`, once(set(lock.WithWait(0)), latch.WithInProgressStatus(503))},
		{anIdempotent, `, "keep": "4s"`, once(set(lock.WithKeep(4 * time.Second)))},
		{anIdempotent, `, "final_below": 300`, once(nil, successes)},
		{anIdempotent, `, "fingerprint": "global"`, once(nil, latch.WithFingerprint(keyfunc.Global))},
		{anIdempotent, `, "contract": "acp"`, once(nil, latch.ACP())},
		{anIdempotent, `, "contract": "stripe"`, once(nil, latch.Stripe())},
		{anIdempotent + `, "contract": "stripe"`, `, "final_below": 300`, once(nil, latch.Stripe(), successes)},
		{anIdempotent, `, "lifetime_header": true`, once(nil, latch.WithLifetimeHeader())},
		{anIdempotent, `, "request_limit": 3`, once(nil, latch.WithBodyLimits(3, 1<<20))},
		{anIdempotent, `, "response_limit": 3`, once(nil, latch.WithBodyLimits(1<<20, 3))},
		{aDedupe, `, "window": "4s"`, dedupe},
	} {
		synctest.Test(t, func(t *testing.T) {
			// Each guard has its own locker and store, or they would meet.
			fromFile := func(fields string) string { return scene(must.Get(load(t, `{"g": {`+fields+`}}`))(t).Get("g")) }
			plain := tt.plain
			if plain == aDedupe {
				plain += `, "window": "1s"`
			}
			got := fromFile(tt.plain + tt.added)
			require.Equal(t, scene(tt.code(guardtest.NewLocker(t, memstore.New()))), got, tt.added)
			require.NotEqual(t, fromFile(plain), got, "the scene does not show what this does: %s", tt.added)
		})
	}
}

// scene sends what each setting has something to say about, and returns what became of it.
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
		}{{``, nil, 503}, {`, "fail_open": true`, nil, 201}, {``, open, 201}, {`, "fail_open": false`, open, 503}} {
			synctest.Test(t, func(t *testing.T) {
				var down atomic.Bool
				down.Store(true)
				l := guardtest.NewLocker(t, guardtest.FlakyStore(&down, lock.ErrNotApplied), lock.WithLogger(guardtest.Quiet))
				guards := must.Get(policy.Load(strings.NewReader(`{"g": {`+kind+tt.fields+`}}`), l, offered, tt.opts...))(t)
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
				return must.Get(policy.Load(strings.NewReader(`{"g": {`+anIdempotent+fields+`}}`), l, offered))(t).Get("g")(h)
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

const aDedupe = `"kind": "dedupe", "scope": "user"`

// TestInvalidGuards: what is wrong with a guard, the sentence that the file's author reads, and the code that panics with
// the same sentence, if code can say that at all.
func TestInvalidGuards(t *testing.T) {
	t.Parallel()
	l := guardtest.NewLocker(t, memstore.New())
	for _, tt := range []struct {
		fields   string
		field    string
		sentence string
		code     func()
	}{
		{``, "", `it has no kind: add "kind": "lock", "idempotent" or "dedupe"`, nil},
		{`"kind": "mutex"`, "kind", `"mutex" is not a kind of guard: write "lock", "idempotent" or "dedupe"`, nil},
		{aLock + `, "leases": "1s"`, "", `there is no field "leases": write lease`, nil},
		{aLock + `, "keep": "1h"`, "", `"keep" is for guards of kind idempotent, and this one is of kind lock: remove it`, nil},
		{`"kind": "lock", "name": "user"`, "", `it has no key, which guards of kind lock need: add it`, func() { latch.Lock(l, "user", nil) }},
		{`"kind": "lock", "key": "user", "name": ""`, "name", `empty name: say what the key is, like "user" or "order"`, func() { latch.Lock(l, "", guardtest.ByUser) }},
		{`"kind": "lock", "key": "user", "name": "once:x"`, "name", `name "once:x": the Locker keeps keys that begin with once: for receipts`, func() { latch.Lock(l, "once:x", guardtest.ByUser) }},
		{`"kind": "lock", "key": "user", "name": null`, "name", `null is not a name: write one in quotes, like "user"`, nil},
		{`"kind": "lock", "name": "user", "key": "users"`, "key", `the code offers no key function "users": write user`, nil},
		{`"kind": "dedupe", "window": "1s", "scope": true`, "scope", `true is not the name of a key function: write one in quotes`, nil},
		{anIdempotent + `, "fingerprint": "globale"`, "fingerprint", `the code offers no key function "globale": write global`, nil},
		{aDedupe + `, "window": "0s"`, "window", `the duration must be positive`, func() { latch.Dedupe(l, guardtest.ByUser, 0) }},
		{aDedupe + `, "window": 1`, "window", `1 is not a duration: write a number with a unit, in quotes, like "30s", "500ms" or "24h"`, nil},
		{aLock + `, "lease": "0s"`, "lease", `the duration must be positive`, func() { lock.WithLease(0) }},
		{aLock + `, "lease": "999ms"`, "lease", `a lease of 999ms is too short for a budget of 500ms: a claim that was answered late would be over before its work began; the lease must be at least twice the budget`, func() { l.With(lock.WithLease(999 * time.Millisecond)) }},
		{aLock + `, "lease": "20m"`, "lease", `a maximum hold of 15m0s is shorter than the lease of 20m0s`, func() { l.With(lock.WithLease(20 * time.Minute)) }},
		{aLock + `, "max_hold": "-1s"`, "max_hold", `the duration must be positive`, func() { lock.WithMaxHold(-time.Second) }},
		{aLock + `, "max_hold": "20s"`, "max_hold", `a maximum hold of 20s is shorter than the lease of 30s`, func() { l.With(lock.WithMaxHold(20 * time.Second)) }},
		{aLock + `, "wait": "-1s"`, "wait", `the duration must not be negative`, func() { lock.WithWait(-time.Second) }},
		{anIdempotent + `, "keep": "0s"`, "keep", `the duration must be positive`, func() { lock.WithKeep(0) }},
		{anIdempotent + `, "rerun_abandoned": false`, "rerun_abandoned", `false takes nothing back that the code says: remove the field`, nil},
		{aLock + `, "cooldown": "0s"`, "cooldown", `the duration must be positive`, func() { latch.WithCooldown(0) }},
		{aLock + `, "unknown_hold": "0s"`, "unknown_hold", `the duration must be positive`, func() { latch.WithUnknownHold(0) }},
		{aLock + `, "cooldown": "1s", "cooldown_status": 423`, "cooldown_status", `use 409 or 429`, func() { latch.WithCooldownStatus(423) }},
		{anIdempotent + `, "in_progress_status": 425`, "in_progress_status", `use 409 or 503`, func() { latch.WithInProgressStatus(425) }},
		{aLock + `, "contention_status": 503`, "contention_status", `use 409, 423, 425 or 429`, func() { latch.WithContentionStatus(503) }},
		{aLock + `, "contention_status": 18446744073709552025`, "contention_status", `18446744073709552025 is not a whole number: write one, without quotes`, nil},
		{aLock + `, "body_first": 0`, "body_first", `the limit must be positive`, func() { latch.WithBodyFirst(0) }},
		{anIdempotent + `, "final_below": 200`, "final_below", `200 keeps no answers, or all there are: write 300, 400 or 500`, nil},
		{anIdempotent + `, "contract": "paypal"`, "contract", `"paypal" is not a known contract: write "acp", "ucp" or "stripe"`, nil},
		{anIdempotent + `, "contract": 1`, "contract", `1 is not the name of a contract: write "acp", "ucp" or "stripe"`, nil},
		{anIdempotent + `, "contract": "acp", "keep": "23h"`, "keep", `its contract demands that answers are kept for 24h0m0s or longer, and they are kept for 23h0m0s`, func() {
			latch.Idempotent(l.With(lock.WithKeep(23*time.Hour)), guardtest.ByUser, keyfunc.IdempotencyKey, latch.ACP())
		}},
		{anIdempotent + `, "lifetime_header": false`, "lifetime_header", `false takes nothing back that the code says: remove the field`, nil},
		{anIdempotent + `, "request_limit": 0`, "request_limit", `the limit must be positive`, func() { latch.WithBodyLimits(0, 1) }},
		{anIdempotent + `, "request_limit": 1, "response_limit": -1`, "response_limit", `the limit must be positive`, func() { latch.WithBodyLimits(1, -1) }},
		{anIdempotent + `, "fail_open": null`, "fail_open", `null is not true or false: write one of them, without quotes`, nil},
	} {
		_, err := load(t, `{"g": {`+tt.fields+`}}`)
		require.Error(t, err, tt.fields)
		where := ""
		if tt.field != "" {
			where = ", " + tt.field
		}
		lines := strings.Split(err.Error(), "\n")
		require.Regexp(t, `^line 1, column \d+: guard "g"`+regexp.QuoteMeta(where+": "+tt.sentence)+"$", lines[0])
		require.Len(t, lines, 1, tt.fields)
		if tt.code != nil {
			require.Contains(t, panicOf(tt.code), sentenceOfCode(tt.sentence), tt.fields)
		}
	}

	// No field of any kind takes a list.
	for _, kind := range []string{aLock, anIdempotent, aDedupe + `, "window": "1s"`} {
		_, err := load(t, `{"g": {`+kind+`, "xxxxxxxx": 0}}`)
		_, all, found := strings.Cut(err.Error(), "use one of ")
		require.True(t, found, err)
		for field := range strings.SplitSeq(all, ", ") {
			if !strings.Contains(kind, `"`+field+`"`) {
				_, err := load(t, `{"g": {`+kind+`, "`+field+`": []}}`)
				require.ErrorContains(t, err, `guard "g", `+field+`: `)
			}
		}
	}
}

// sentenceOfCode is the mistake in terms of code: a missing key is a nil one.
func sentenceOfCode(ofFile string) string {
	if strings.HasPrefix(ofFile, "it has no key") {
		return "nil key function"
	}
	return ": " + ofFile
}

// panicOf returns what f panics with.
func panicOf(f func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	f()
	return ""
}

// TestValidGuardsAtTheirBounds: what is next to a row of TestInvalidGuards.
func TestValidGuardsAtTheirBounds(t *testing.T) {
	t.Parallel()
	for _, fields := range []string{
		aLock + `, "lease": "1s"`, aLock + `, "lease": "15m"`, aLock + `, "lease": "15m", "max_hold": "15m"`, aLock + `, "max_hold": "30s"`,
		aLock + `, "lease": "1s", "max_hold": "1s"`, aLock + `, "lease": "1h", "max_hold": "2h"`,
		aLock + `, "wait": "1ns", "cooldown": "1ns", "body_first": 1`,
		anIdempotent + `, "keep": "1ns", "request_limit": 1, "response_limit": 1`,
		anIdempotent + `, "contract": "ucp", "keep": "24h"`,
		anIdempotent + `, "final_below": 201`, anIdempotent + `, "final_below": 600`,
		aDedupe + `, "window": "1ns"`,
	} {
		_, err := load(t, `{"g": {`+fields+`}}`)
		require.NoError(t, err, fields)
	}
}

// A file is checked against the durations of the Locker that it is for.
func TestGuardsFitTheirLocker(t *testing.T) {
	t.Parallel()
	l := guardtest.NewLocker(t, memstore.New(), lock.WithBudget(5*time.Second))
	text := `{"g": {` + aLock + `, "lease": "9s"}}`
	_, err := policy.Load(strings.NewReader(text), l, map[string]keyfunc.Func{"user": guardtest.ByUser})
	require.ErrorContains(t, err, `lease: a lease of 9s is too short for a budget of 5s`)
}

// A contract that the code sets for all guards of a file meets the keep of one of them.
func TestContractOfTheCodeMeetsAShortKeep(t *testing.T) {
	t.Parallel()
	load := func(keep string) error {
		text := "{\n" + `"g": {` + anIdempotent + keep + `}}`
		_, err := policy.Load(strings.NewReader(text), guardtest.NewLocker(t, memstore.New(), lock.WithKeep(time.Hour)), offered, latch.ACP())
		return err
	}
	require.NoError(t, load(`, "keep": "24h"`))
	require.ErrorContains(t, load(`, "keep": "2h"`), `line 2, column 80: guard "g", keep: its contract demands that answers are kept for 24h0m0s`)
	require.ErrorContains(t, load(``), `line 2, column 1: guard "g": its contract demands that answers are kept for 24h0m0s`)
}
