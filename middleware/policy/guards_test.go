package policy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/quorum"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/policy"
)

// offered are the key functions that the files of these tests may name.
var offered = map[string]keyfunc.Func{
	"user":            guardtest.ByUser,
	"global":          keyfunc.Global,
	"idempotency-key": keyfunc.IdempotencyKey,

	"optional-idempotency-key": keyfunc.Optional(keyfunc.IdempotencyKey),
}

func load(t *testing.T, text string, opts ...latch.Option) (*policy.Guards, error) {
	t.Helper()
	return policy.Load(strings.NewReader(text), guardtest.NewLocker(t, memstore.New()), offered, opts...)
}

// TestLoadSaysWhatIsWrong: the places of mistakes, also of several at once. Their sentences are in TestInvalidGuards.
func TestLoadSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want []string
	}{
		{``, []string{`line 1, column 1: this is no JSON: unexpected end of JSON input`}},
		{"{\n  \"g\": {},\n}", []string{`line 3, column 1: this is no JSON: invalid character '}' looking for beginning of object key string`}},
		{"{\n\t// mine\n}", []string{`line 2, column 2: this is no JSON: invalid character '/' looking for beginning of object key string`}},
		{`{} {}`, []string{`line 1, column 4: this is no JSON: invalid character '{' after top-level value`}},
		{`{"g`, []string{`line 1, column 3: this is no JSON: unexpected end of JSON input`}},
		{`[]`, []string{`line 1, column 1: this has to be an object with a guard under each name, like {"submit-order": {"kind": "lock", ...}}`}},
		{"\n null", []string{`line 2, column 2: this has to be an object with a guard under each name, like {"submit-order": {"kind": "lock", ...}}`}},
		{`{"g": 1, "h": []}`, []string{
			`line 1, column 7: this has to be an object with the fields of a guard, like {"kind": "lock", ...}`,
			`line 1, column 15: this has to be an object with the fields of a guard, like {"kind": "lock", ...}`,
		}},
		{`{"": {"kind": "dedupe", "scope": "user", "window": "1s"}}`, []string{`line 1, column 2: a guard without a name: give it one, like "submit-order"`}},
		{`{"ü": {"kind": "lock", "name": "", "key": "user"}}`, []string{`line 1, column 32: guard "ü", name: empty name: say what the key is, like "user" or "order"`}},
		{`{"g": {"kind": "lock", "name": "user", "key": "session"}}`, []string{`line 1, column 47: guard "g", key: the code offers no key function "session": use one of global, idempotency-key, optional-idempotency-key, user`}},
		{`{"g": {"kind": "dedupe", "scope": "user", "window": "0s", "keep": "1h"}}`, []string{
			`line 1, column 53: guard "g", window: the duration must be positive`,
			`line 1, column 59: guard "g": "keep" is for guards of kind idempotent, and this one is of kind dedupe: remove it`,
		}},
		{`{"g": {` + aLock + `, "max-hold": "1m", "coolDown": "1s", "leases": "1s"}}`, []string{
			`line 1, column 55: guard "g": there is no field "max-hold": write max_hold`,
			`line 1, column 73: guard "g": there is no field "coolDown": write cooldown`,
			`line 1, column 91: guard "g": there is no field "leases": write lease`,
		}},
		{`{"g": {` + aLock + `, "wait": "-1s", "cooldown": "-1s", "lease": "1d"}}`, []string{
			`line 1, column 63: guard "g", wait: the duration must not be negative`,
			`line 1, column 82: guard "g", cooldown: the duration must be positive`,
			`line 1, column 98: guard "g", lease: "1d" is not a duration: write a number with a unit, in quotes, like "30s", "500ms" or "24h"`,
		}},
		{`{"g": {` + aLock + `, "contention_status": 409.5, "lease": "30s", "lease": "10s"}}`, []string{
			`line 1, column 76: guard "g", contention_status: 409.5 is not a whole number: write one, without quotes`,
			`line 1, column 99: "lease" is there already, on line 1: remove one of them`,
		}},
		{`{"g": {"kind": "lock", "name": "user", "key": ["user"]}}`, []string{`line 1, column 47: guard "g", key: a list is not the name of a key function: write one in quotes`}},
		{`{"g": {` + anIdempotent + `, "final_below": true, "fingerprint": "body", "rerun_abandoned": 1}}`, []string{
			`line 1, column 88: guard "g", final_below: true is not a status: write a number, without quotes, like 400`,
			`line 1, column 109: guard "g", fingerprint: the code offers no key function "body": use one of global, idempotency-key, optional-idempotency-key, user`,
			`line 1, column 136: guard "g", rerun_abandoned: 1 is not true: write that, without quotes, or remove the field`,
		}},
		{`{"g": {` + anIdempotent + `, "wait": "` + strings.Repeat("x", 100) + `"}}`, []string{
			`line 1, column 81: guard "g", wait: "` + strings.Repeat("x", 39) + `... is not a duration: write a number with a unit, in quotes, like "30s", "500ms" or "24h"`,
		}},
	} {
		guards, err := load(t, tt.text)
		require.Error(t, err, tt.text)
		require.Equal(t, tt.want, strings.Split(err.Error(), "\n"), tt.text)
		require.Nil(t, guards)
	}
}

func TestLoadOfNothing(t *testing.T) {
	t.Parallel()
	l := guardtest.NewLocker(t, memstore.New())
	_, err := policy.Load(strings.NewReader(`{"g": {"kind": "lock", "name": "user", "key": "user"}}`), l, nil)
	require.EqualError(t, err, `line 1, column 47: guard "g", key: the code offers no key function "user": the code offers none`)
	broken := errors.New("disk on fire")
	_, err = policy.Load(iotest.ErrReader(broken), l, offered)
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, "policy: reading the file: disk on fire")
}

const mounted = `{
  "once": {"kind": "idempotent", "scope": "user", "key": "idempotency-key"},
  "one-per-user": {"kind": "lock", "name": "user", "key": "user"},
  "twice": {"kind": "dedupe", "scope": "user", "window": "1s"}
}`

func TestCheckNamesAllThatDoesNotFit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ask  []string
		want string
	}{
		{[]string{"once", "one-per-user", "twice", "once"}, ""},
		{[]string{"once", "one-per-user"}, `line 4, column 3: guard "twice" is not mounted: remove it, or mount it on its route with Get`},
		{[]string{"once", "one_per_user", "twice", "one_per_user", "order"}, `guard "one_per_user" is mounted and not in the policies: add it, or rename "one-per-user" on line 3
guard "order" is mounted and not in the policies: add it
line 3, column 3: guard "one-per-user" is not mounted: remove it, or mount it on its route with Get`},
	} {
		guards := must.Get(load(t, mounted))(t)
		for _, name := range tt.ask {
			require.NotNil(t, guards.Get(name))
		}
		if err := guards.Check(); tt.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, tt.want)
		}
	}
}

// Over a store that keeps no receipts, a file is refused that asks for some.
func TestLoadOverAQuorum(t *testing.T) {
	t.Parallel()
	l := guardtest.NewLocker(t, quorum.New([]lock.Store{memstore.New(), memstore.New(), memstore.New()}))
	_, err := policy.Load(strings.NewReader(mounted), l, offered)
	require.ErrorContains(t, err, `guard "once", kind: quorum: it keeps locks and cool-downs, and no receipts: for Once, Idempotent and Dedupe use one Redis`)
	require.ErrorContains(t, err, `guard "twice", kind: quorum: it keeps`)
	must.Get(policy.Load(strings.NewReader(`{"g": {`+aLock+`, "cooldown": "1m"}}`), l, offered))(t)
	_, err = policy.Load(strings.NewReader(`{"g": {`+aLock+`, "unknown_hold": "1m"}}`), l, offered)
	require.ErrorContains(t, err, `guard "g", unknown_hold: quorum: it keeps`)
}

// TestMissingGuardRefuses is for programs that do not call Check.
func TestMissingGuardRefuses(t *testing.T) {
	t.Parallel()
	var got *latch.Problem
	var events []lock.Event
	l := guardtest.NewLocker(t, memstore.New(), lock.WithObserver(func(_ context.Context, e lock.Event) { events = append(events, e) }))
	guards, err := policy.Load(strings.NewReader(`{}`), l, offered, latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
		got = p
		p.ServeHTTP(w, r)
	}))
	require.NoError(t, err)
	w := guardtest.Serve(guards.Get("orders")(guardtest.MustNotRun(t)), guardtest.Post("42"))
	require.Equal(t, 500, w.Code)
	require.Equal(t, http.Header{"Latch-Problem": {"refused"}, "Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"}, "Vary": {"Accept"}}, w.Header())
	require.JSONEq(t, `{"title": "Internal Server Error", "status": 500}`, w.Body.String())
	require.EqualError(t, got.Err, `policy: guard "orders" is not in the policies`)
	require.Len(t, events, 1)
	require.Equal(t, lock.EventRejected, events[0].Kind)
	require.ErrorIs(t, events[0].Err, got.Err)

	r := guardtest.Post("42")
	r.Method = http.MethodGet
	require.Equal(t, 201, guardtest.Serve(guards.Get("orders")(http.HandlerFunc(guardtest.Created)), r).Code, "as a guard does")
}

func TestLoadMisusePanics(t *testing.T) {
	t.Parallel()
	l, file := guardtest.NewLocker(t, memstore.New()), strings.NewReader(`{}`)
	for want, f := range map[string]func(){
		"policy.Load: nil io.Reader":           func() { _, _ = policy.Load(nil, l, nil) },
		"policy.Load: nil *lock.Locker":        func() { _, _ = policy.Load(file, nil, nil) },
		`policy.Load: nil key function "user"`: func() { _, _ = policy.Load(file, l, map[string]keyfunc.Func{"user": nil}) },
		"middleware.With: nil option":          func() { _, _ = policy.Load(file, l, nil, nil) },
	} {
		require.PanicsWithValue(t, want, f)
	}
}

// FuzzLoad: whatever a file is, there is an answer to it, and each error says where it is from.
func FuzzLoad(f *testing.F) {
	f.Add(string(must.Get(os.ReadFile("testdata/mistakes.json"))(f)))
	f.Add(mounted)
	f.Add("\ufeff{}")
	f.Add(`{"g": {"kind": "dedupe", "scope": "user", "window": "1s", "request_limit": 9223372036854775807}}`)
	l := lock.New(memstore.New())
	f.Fuzz(func(t *testing.T, text string) {
		guards, err := policy.Load(strings.NewReader(text), l, offered)
		require.NotEqual(t, err == nil, guards == nil)
		if err == nil {
			return
		}
		// A name in a text may contain a line break: it is quoted.
		for line := range strings.Lines(err.Error()) {
			m := regexp.MustCompile(`^line (\d+), column (\d+): .`).FindStringSubmatch(line)
			require.NotNil(t, m, line)
			require.LessOrEqual(t, must.Get(strconv.Atoi(m[1]))(t), strings.Count(text, "\n")+1)
		}
	})
}

// A guard of a file has the file's name for it, in events and in what its records say. A
// lock has the name of its key, which other routes and workers may share.
func TestGuardsHaveTheirNamesOfTheFile(t *testing.T) {
	t.Parallel()
	for guard, want := range map[string]string{"once": "once", "twice": "twice", "one-per-user": "user"} {
		var named []string
		memory := memstore.New()
		l := guardtest.NewLocker(t, memory, lock.WithObserver(func(_ context.Context, e lock.Event) { named = append(named, e.Name) }))
		h := must.Get(policy.Load(strings.NewReader(mounted), l, offered))(t).Get(guard)(http.HandlerFunc(guardtest.Created))
		require.Equal(t, http.StatusCreated, guardtest.Serve(h, guardtest.Keyed("k")).Code)
		require.NotEmpty(t, named)
		for _, name := range named {
			require.Equal(t, want, name)
		}
		for e, err := range memory.List(t.Context()) { // a lock leaves nothing
			require.NoError(t, err)
			require.Equal(t, guard, requestinfo.Guard(e.Owner))
		}
	}
}

// A name that WithName refuses is a mistake in the file, except for a lock, whose guard has that name in the file only.
func TestNamesOfTheFileThatDoNotDo(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("x", 65), `a\nb`} {
		_, err := load(t, fmt.Sprintf(`{"%s": {%s}}`, name, anIdempotent))
		require.ErrorContains(t, err, "line 1, column 2: guard ")
		require.ErrorContains(t, err, ": a name has at most 64 bytes of UTF-8, and no control characters")
		must.Get(load(t, fmt.Sprintf(`{"%s": {%s}}`, name, aLock)))(t)
	}
	must.Get(load(t, fmt.Sprintf(`{"%s": {%s}}`, strings.Repeat("x", 64), anIdempotent)))(t)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
