// Package policy makes guards of a JSON file, so that their settings can be
// changed without a new build. Where they are mounted stays in the code, which
// asks for them by name:
//
//	guards, err := policy.Load(file, locker, map[string]keyfunc.Func{
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
// The guards are those that the constructors of package middleware return:
// requests pay nothing for the file.
//
// # The file
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
//	kind               "lock" ([latch.Lock]), "idempotent" ([latch.Idempotent]) or "dedupe" ([latch.Dedupe]); required
//	name               lock: the name of the lock; required
//	scope              idempotent, dedupe: a name of keys; required
//	key                lock, idempotent: a name of keys; required
//	window             dedupe: a duration; required
//	lease              [lock.WithLease]
//	max_hold           [lock.WithMaxHold]
//	wait               [lock.WithWait]
//	keep               idempotent: [lock.WithKeep]
//	rerun_abandoned    idempotent, dedupe: true for [lock.WithRerunAbandoned]
//	cooldown           lock: [latch.WithCooldown]
//	cooldown_status    lock: [latch.WithCooldownStatus]; needs a cooldown
//	contention_status  lock: [latch.WithContentionStatus]
//	body_first         lock: [latch.WithBodyFirst], bytes
//	final_below        idempotent, dedupe: [latch.WithFinal], answers with a status below this one are kept, and no others
//	fingerprint        idempotent, dedupe: [latch.WithFingerprint], a name of keys
//	request_limit      idempotent, dedupe: [latch.WithBodyLimits], bytes
//	response_limit     idempotent, dedupe: [latch.WithBodyLimits], bytes
//	fail_open          true for [latch.WithFailOpen], false for [latch.WithFailClosed]
//
// Durations are strings, as in "1m30s". What a field leaves out is as the Locker
// and the options that [Load] is given have it. The options are for what no file
// can say, such as [latch.WithErrorHandler]; of what both say, the file's counts.
//
// # Mistakes
//
// The error of [Load] names everything that is wrong with the file, each with its
// line and column, and what to write instead: errors are joined, one to a line.
// Unknown fields, names that occur twice, and whatever the constructors would
// panic about are refused. If the text is no JSON, that is the only error.
package policy
