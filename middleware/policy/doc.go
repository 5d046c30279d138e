// Package policy makes guards from a JSON file, so that their settings can change without a
// new build. The code still mounts them, and asks for them by name:
//
//	guards, err := policy.Load(file, locker, map[string]keyfunc.Func{
//		"user":            keyfunc.Context(auth.UserID),
//		"idempotency-key": keyfunc.IdempotencyKey,
//	})
//	...
//	r.With(auth.Require, guards.Get("order-once"), guards.Get("order-lock")).Post("/orders", createOrder)
//	...
//	if err := guards.Check(); err != nil { // file and code disagree
//
// A file has no paths: they would duplicate the router's decision, and a rewritten path would
// escape its guard.
//
// The constructors of package middleware make the guards, so the file costs requests nothing.
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
// Each field stands for an argument or an option:
//
//	kind                "lock" ([latch.Lock]), "idempotent" ([latch.Idempotent]) or "dedupe" ([latch.Dedupe]); required
//	name                lock: the name of the lock; required
//	scope               idempotent, dedupe: a name of keys; required
//	key                 lock, idempotent: a name of keys; required
//	window              dedupe: a duration; required
//	lease               [lock.WithLease]
//	max_hold            [lock.WithMaxHold]
//	wait                [lock.WithWait]
//	keep                idempotent: [lock.WithKeep]
//	rerun_abandoned     idempotent, dedupe: true for [lock.WithRerunAbandoned]
//	cooldown            lock: [latch.WithCooldown]
//	cooldown_status     lock: [latch.WithCooldownStatus]; needs a cooldown
//	contention_status   lock: [latch.WithContentionStatus]
//	unknown_hold        lock: [latch.WithUnknownHold]
//	body_first          lock: [latch.WithBodyFirst], bytes
//	lifetime_header     idempotent, dedupe: true for [latch.WithLifetimeHeader]
//	in_progress_status  idempotent, dedupe: [latch.WithInProgressStatus]
//	final_below         idempotent, dedupe: [latch.WithFinal], only answers with a status below this one are kept
//	fingerprint         idempotent, dedupe: [latch.WithFingerprint], a name of keys
//	contract            idempotent, lock: "acp" ([latch.ACP]), "ucp" ([latch.UCP]) or "stripe" ([latch.Stripe]); other fields override it
//	request_limit       idempotent, dedupe: [latch.WithBodyLimits], bytes
//	response_limit      idempotent, dedupe: [latch.WithBodyLimits], bytes
//	fail_open           true for [latch.WithFailOpen], false for [latch.WithFailClosed]
//
// Durations are strings, as in "1m30s". An omitted field keeps the setting of the Locker, or of
// the options of [Load]. The options are for settings that no file can have, such as
// [latch.WithErrorHandler]; the file overrides them.
//
// # Mistakes
//
// The error of [Load] has all mistakes of the file, one to a line, each with its line and
// column and a correction. Mistakes are unknown fields, names that occur twice, and values for
// which the constructors would panic. If the text is not JSON, Load reports only this.
package policy
