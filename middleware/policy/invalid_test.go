package policy_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/policy"
)

const aDedupe = `"kind": "dedupe", "scope": "user"`

// TestInvalidGuards: what is wrong with a guard, the sentence that the file's
// author reads, and the code that panics with the same sentence, if code can say
// that at all.
func TestInvalidGuards(t *testing.T) {
	t.Parallel()
	l := guardtest.NewLocker(t, memstore.New())
	tests := []struct {
		fields   string
		field    string
		sentence string
		code     func()
	}{
		{``, "", `it has no kind: add "kind": "lock", "idempotent" or "dedupe"`, nil},
		{`"kind": "mutex"`, "kind", `"mutex" is not a kind of guard: write "lock", "idempotent" or "dedupe"`, nil},
		{aLock + `, "ttl": "1s", "lease": "30s"`, "", `there is no field "ttl": use one of body_first, contention_status, contract, cooldown, cooldown_status, fail_open, key, kind, lease, max_hold, name, unknown_hold, wait`, nil},
		{aLock + `, "keep": "1h"`, "", `"keep" is for guards of kind idempotent, and this one is of kind lock: remove it`, nil},
		{`"kind": "lock", "name": "user"`, "", `it has no key, which guards of kind lock need: add it`, func() { latch.Lock(l, "user", nil) }},

		{`"kind": "lock", "key": "user", "name": ""`, "name", `empty name: say what the key is, like "user" or "order"`, func() { latch.Lock(l, "", guardtest.ByUser) }},
		{`"kind": "lock", "key": "user", "name": "once:x"`, "name", `name "once:x": the Locker keeps keys that begin with once: for receipts`, func() { latch.Lock(l, "once:x", guardtest.ByUser) }},
		{`"kind": "lock", "key": "user", "name": null`, "name", `null is not a name: write one in quotes, like "user"`, nil},
		{`"kind": "lock", "name": "user", "key": "users"`, "key", `the code offers no key function "users": write user`, nil},
		{`"kind": "dedupe", "window": "1s", "scope": true`, "scope", `true is not the name of a key function: write one in quotes`, nil},
		{anIdempotent + `, "fingerprint": "globale"`, "fingerprint", `the code offers no key function "globale": write global`, nil},

		{aDedupe + `, "window": "0s"`, "window", `the duration must be positive`, func() { latch.Dedupe(l, guardtest.ByUser, 0) }},
		{aDedupe + `, "window": "-1s"`, "window", `the duration must be positive`, func() { latch.Dedupe(l, guardtest.ByUser, -time.Second) }},
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
		{anIdempotent + `, "final_below": 601`, "final_below", `601 keeps no answers, or all there are: write 300, 400 or 500`, nil},
		{anIdempotent + `, "contract": "paypal"`, "contract", `"paypal" is not a known contract: write "acp", "ucp" or "stripe"`, nil},
		{anIdempotent + `, "contract": 1`, "contract", `1 is not the name of a contract: write "acp", "ucp" or "stripe"`, nil},
		{anIdempotent + `, "contract": "acp", "keep": "23h"`, "keep", `its contract demands that answers are kept for 24h0m0s or longer, and they are kept for 23h0m0s`, func() {
			latch.Idempotent(l.With(lock.WithKeep(23*time.Hour)), guardtest.ByUser, keyfunc.IdempotencyKey, latch.ACP())
		}},
		{anIdempotent + `, "lifetime_header": false`, "lifetime_header", `false takes nothing back that the code says: remove the field`, nil},
		{anIdempotent + `, "request_limit": 0`, "request_limit", `the limit must be positive`, func() { latch.WithBodyLimits(0, 1) }},
		{anIdempotent + `, "request_limit": 1, "response_limit": -1`, "response_limit", `the limit must be positive`, func() { latch.WithBodyLimits(1, -1) }},
		{anIdempotent + `, "fail_open": null`, "fail_open", `null is not true or false: write one of them, without quotes`, nil},
	}
	have := []string{"kind"}
	for _, tt := range tests {
		_, err := load(t, `{"g": {`+tt.fields+`}}`)
		require.Error(t, err, tt.fields)
		where := ""
		if tt.field != "" {
			where = ", " + tt.field
			have = append(have, tt.field)
		}
		lines := strings.Split(err.Error(), "\n")
		require.Regexp(t, `^line 1, column \d+: guard "g"`+regexp.QuoteMeta(where+": "+tt.sentence)+"$", lines[0])
		require.Len(t, lines, 1, tt.fields)
		if tt.code != nil {
			require.Contains(t, panicOf(tt.code), sentenceOfCode(tt.sentence), tt.fields)
		}
	}

	// All fields of all kinds.
	for _, kind := range []string{aLock, anIdempotent, aDedupe + `, "window": "1s"`} {
		_, err := load(t, `{"g": {`+kind+`, "xxxxxxxx": 0}}`)
		_, all, found := strings.Cut(err.Error(), "use one of ")
		require.True(t, found, err)
		for field := range strings.SplitSeq(all, ", ") {
			require.True(t, slices.Contains(have, field), "%s has no row", field)
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
