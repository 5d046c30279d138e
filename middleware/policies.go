package middleware

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
)

// Guards are the guards of a policies file, by name. They are for the code that
// sets up routes, and safe for concurrent use.
type Guards struct {
	policies []policy // in the order of the file
	settings settings // of what stands in for a missing one
	doc      *document

	mu      sync.Mutex
	asked   map[string]bool
	missing []string // names that the file does not have, in the order of asking
}

// LoadPolicies makes guards of a JSON file, so that their settings can be
// changed without a new build. Where they are mounted stays in the code, which
// asks for them by name:
//
//	guards, err := latch.LoadPolicies(file, locker, map[string]keyfunc.Func{
//		"user":            keyfunc.Context(auth.UserID),
//		"idempotency-key": keyfunc.IdempotencyKey,
//	})
//	...
//	r.With(auth.Require, guards.Get("order-once"), guards.Get("order-lock")).Post("/orders", createOrder)
//	...
//	if err := guards.Check(); err != nil { // what file and code do not agree about
//
// A file has no paths in it: a second opinion on which route a request takes is
// one that a rewritten path gets around.
//
// The file is one object, with a guard under each name:
//
//	{
//	  "order-once": {"kind": "idempotent", "scope": "user", "key": "idempotency-key", "wait": "5s"},
//	  "order-lock": {"kind": "lock", "name": "user", "key": "user", "cooldown": "2s", "contention_status": 429}
//	}
//
// Each field says what an argument or an option says in code:
//
//	kind               "lock" ([Lock]), "idempotent" ([Idempotent]) or "dedupe" ([Dedupe]); required
//	name               lock: the name of the lock; required
//	scope              idempotent, dedupe: a name of keys; required
//	key                lock, idempotent: a name of keys; required
//	window             dedupe: a duration; required
//	lease              [lock.WithLease]
//	max_hold           [lock.WithMaxHold]
//	wait               [lock.WithWait]
//	keep               idempotent: [lock.WithKeep]
//	rerun_abandoned    idempotent, dedupe: true for [lock.WithRerunAbandoned]
//	cooldown           lock: [WithCooldown]
//	cooldown_status    lock: [WithCooldownStatus]
//	contention_status  lock: [WithContentionStatus]
//	body_first         lock: [WithBodyFirst], bytes
//	final_below        idempotent, dedupe: [WithFinal], answers with a status below this one are kept, and no others
//	fingerprint        idempotent, dedupe: [WithFingerprint], a name of keys
//	request_limit      idempotent, dedupe: [WithBodyLimits], bytes
//	response_limit     idempotent, dedupe: [WithBodyLimits], bytes
//	fail_open          true for [WithFailOpen]; false takes it back from opts
//
// Durations are strings, as in "1m30s". What a field leaves out is as l and opts
// have it. opts are for what no file can say, such as [WithErrorHandler]; of
// what both say, the file's counts.
//
// The error names everything that is wrong with the file, each with its line
// and column, and what to write instead: errors are joined, one to a line.
// Unknown fields, names that occur twice, and whatever the constructors would
// panic about are refused. If the text is no JSON, that is the only error.
//
// The guards are those that the constructors return: requests pay nothing for
// the file.
//
// It panics on a nil reader, a nil Locker, a nil key function and a nil option.
func LoadPolicies(r io.Reader, l *lock.Locker, keys map[string]keyfunc.Func, opts ...Option) (*Guards, error) {
	switch {
	case r == nil:
		panic("middleware.LoadPolicies: nil io.Reader")
	case l == nil:
		panic("middleware.LoadPolicies: nil *lock.Locker")
	}
	for name, f := range keys {
		if f == nil {
			panic(fmt.Sprintf("middleware.LoadPolicies: nil key function %q", name))
		}
	}
	defaults := With(opts...)

	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("middleware: reading policies: %w", err)
	}
	doc := &document{text: text}
	policies := doc.policies(l, keys, defaults)
	if err := doc.err(); err != nil {
		return nil, err
	}
	c := lockConfig{settings: settings{onError: sendProblem}}
	defaults.applyLock(&c)
	return &Guards{policies: policies, settings: c.settings, doc: doc, asked: make(map[string]bool)}, nil
}

// Get returns the guard of this name. If the file has none, [Guards.Check] says
// so, and what is returned refuses with 500 what a guard would guard: a route
// never is unguarded by mistake.
func (g *Guards) Get(name string) func(http.Handler) http.Handler {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.named(name); p != nil {
		g.asked[name] = true
		return p.guard
	}
	if !slices.Contains(g.missing, name) {
		g.missing = append(g.missing, name)
	}
	return g.refuseAll(name)
}

// Check says where the file and the code do not agree: which guards Get was
// asked for that the file does not have, and which the file has that Get was
// not asked for. Call it when all routes are set up, and do not serve if it
// returns an error; that names all of them, one to a line.
func (g *Guards) Check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var unused []string
	for _, p := range g.policies {
		if !g.asked[p.name] {
			unused = append(unused, p.name)
		}
	}
	var errs []error
	for _, name := range g.missing {
		hint := ""
		if near := nearest(name, unused); near != "" {
			line, _ := g.doc.position(g.named(near).at)
			hint = fmt.Sprintf(", or rename %q on line %d", near, line)
		}
		errs = append(errs, fmt.Errorf("guard %q is mounted and not in the policies: add it%s", name, hint))
	}
	for _, name := range unused {
		errs = append(errs, g.doc.located(finding{
			g.named(name).at,
			fmt.Sprintf("guard %q is not mounted: remove it, or mount it on its route with Get", name),
		}))
	}
	return errors.Join(errs...)
}

// named returns the policy of this name, or nil.
func (g *Guards) named(name string) *policy {
	i := slices.IndexFunc(g.policies, func(p policy) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return &g.policies[i]
}

// refuseAll stands in for a guard that is missing.
func (g *Guards) refuseAll(name string) func(http.Handler) http.Handler {
	refuser := &refuser{name: name}
	problem := &Problem{
		Status: http.StatusInternalServerError,
		Title:  http.StatusText(http.StatusInternalServerError),
		Err:    fmt.Errorf("middleware: guard %q is not in the policies", name),
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if safe(r.Method) {
				next.ServeHTTP(w, r)
				return
			}
			refuser.refuse(w, r, &g.settings, problem)
		})
	}
}
