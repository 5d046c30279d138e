package middleware

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/jsonrpc"
	"github.com/httplatch/httplatch/middleware/internal/record"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// LockOption configures [Lock] and [LockAll], as every [Option] does.
type LockOption interface{ applyLock(c *config) }

// IdempotentOption configures [Idempotent] and [Dedupe], as every [Option] does.
type IdempotentOption interface{ applyIdempotent(c *config) }

// Option configures any middleware of this package.
type Option interface {
	LockOption
	IdempotentOption
}

// config are the settings of a guard. The zero config is the one without options.
type config struct {
	outage  lock.Option // fail open or closed; nil: the Locker's setting
	onError func(http.ResponseWriter, *http.Request, *Problem)
	secret  []byte // of derived keys; nil: none

	// Of Lock and LockAll.
	cooldown       time.Duration // 0: none
	cooldownStatus int
	contention     int           // the status for a key that is held
	bodyFirst      int64         // 0: the body is the handler's
	permits        int           // 0: one request at a time
	unknownHold    time.Duration // 0: none

	// Of Idempotent and Dedupe.
	once         bool                               // the guard is one of them
	guardName    string                             // "" unless set
	label        func(*http.Request) string         // nil: the scope
	onReplay     func(*http.Request, *Answer) error // nil: replays are sent as they are
	fingerprint  keyfunc.Func                       // nil: of the whole request
	requestLimit int64
	inProgress   int  // the status of a repeat that gets no answer of the first request in time
	echo         bool // answers repeat the request's Idempotency-Key
	saysLifetime bool // answers announce for how long their key is remembered
	contract     bool // the Locker has to keep answers for the time that a contract demands
	rpc          *rpc // nil: requests are not calls of JSON-RPC
	answers      record.Settings
}

// rpc are the settings of JSONRPC.
type rpc struct {
	effect   func(method, tool string) bool
	keyless  func(tool string) bool // calls that may lack a key; nil: none
	status   func(p *Problem) int   // nil: that of the problem
	keys     []jsonrpc.Path
	places   string         // the pointers of keys
	ignored  []jsonrpc.Path // besides the keys
	onlyBody bool           // the key function does not count
}

// option serves any guard: the result type of its function names the guards that take it.
type option func(c *config)

func (o option) applyLock(c *config)       { o(c) }
func (o option) applyIdempotent(c *config) { o(c) }

// With combines several options into one, such as the defaults of an application for all of its
// routes. If two options set the same thing, the last one counts.
func With(opts ...Option) Option {
	for _, o := range opts {
		mustNot(o == nil, "With: nil option")
	}
	opts = slices.Clone(opts)
	return option(func(c *config) {
		for _, o := range opts {
			o.applyLock(c)
		}
	})
}

// WithFailOpen runs the handler unprotected if the store does not answer, or denies the call ([lock.ErrDenied]),
// instead of answering 503. [lock.FromContext] then returns false, and observers get an [lock.EventBypassed]. Only
// duplicates in the same process are still refused. All guards of a Locker with [lock.WithFailOpen] do the same. A
// guard of a Locker with [lock.WithTransaction] panics with this option.
func WithFailOpen() Option {
	return option(func(c *config) { c.outage = lock.WithFailOpen() })
}

// WithFailClosed answers 503 if the store does not answer, which is the default. For one route, it overrides the
// [WithFailOpen] of an application's defaults ([With]), or of the Locker.
func WithFailClosed() Option {
	return option(func(c *config) { c.outage = lock.WithFailClosed() })
}

// WithErrorHandler makes f write the answers to refused requests: status, Content-Type and body. Latch-Problem,
// Retry-After, Cache-Control and [Problem.Header] are already set. f can read the body of r from its first byte, as
// far as the client has sent it. For the default answer, f calls p.ServeHTTP, and with p.Page it can change the texts
// of a page. WithErrorHandler panics if f is nil.
func WithErrorHandler(f func(w http.ResponseWriter, r *http.Request, p *Problem)) Option {
	mustNot(f == nil, "WithErrorHandler: nil function")
	return option(func(c *config) { c.onError = f })
}

// WithCooldown keeps the key taken for d after an answer below 400. Requests during this cool-down get 429 with the
// time left in Retry-After. A handler that answers 400 or above, or panics, frees the key at once. There is no
// cool-down unless set. WithCooldown panics if d is not positive.
//
// Many HTTP clients repeat a 429 by themselves after Retry-After, and the repeat is then a new order: see
// [WithCooldownStatus].
//
// With this option the handler gets a ResponseWriter of this package. It has Flush and Unwrap; use
// [http.ResponseController] for the rest. The answer of a hijacked connection counts as below 400.
func WithCooldown(d time.Duration) LockOption {
	must(setting.ValidatePositive(d), "WithCooldown(%v)", d)
	return option(func(c *config) { c.cooldown = d })
}

// WithCooldownStatus sets the status for a request during a cool-down: 429 unless set, or 409 for clients that repeat
// a 429 by themselves. A 409 has no Retry-After: it says that the earlier request was done. The [lock.RefusedError]
// of the Problem has the time left. WithCooldownStatus panics on any other status.
func WithCooldownStatus(code int) LockOption {
	must(setting.CooldownStatuses.Validate(code), "WithCooldownStatus(%d)", code)
	return option(func(c *config) { c.cooldownStatus = code })
}

// WithBodyFirst reads the whole body, of up to limit bytes, before the key is claimed, so that a client that sends
// its body slowly does not hold the lock meanwhile. The handler finds the body as the client sent it. A longer body
// is refused with 413, and a body that ends too early with 400. The limit is also the limit of key functions that
// read the body. Unless set, the handler reads the body under the lock. Behind [Idempotent] and [Dedupe], only
// requests that they let pass unguarded need it. WithBodyFirst panics if limit is not positive.
func WithBodyFirst(limit int64) LockOption {
	must(setting.ValidateLimits(limit), "WithBodyFirst(%d)", limit)
	return option(func(c *config) { c.bodyFirst = limit })
}

// WithPermits lets n requests with one key run at the same time, in all processes that share the store, instead of
// one. A request takes one of n slots, whichever is free, and is refused only after it has asked for each. A worker
// shares the slots if it passes lock.Slots(name, n, value) to [lock.Locker.DoAny]. Each slot is an ordinary key, with
// its own lease and its own cool-down ([WithCooldown]): n requests in each d.
//
// Use the same n in all processes. While they differ, as during a deployment, the largest n is the limit. WithPermits
// panics if n is not 1 to 64.
func WithPermits(n int) LockOption {
	mustNot(n < 1 || n > keytext.MaxSlots, fmt.Sprintf("WithPermits(%d): a key has 1 to %d permits", n, keytext.MaxSlots))
	return option(func(c *config) { c.permits = n })
}

// WithContentionStatus sets the status for a request whose key is held by another one:
// 409 unless set, or 423, 425 or 429. It panics on any other.
func WithContentionStatus(code int) LockOption {
	must(setting.ContentionStatuses.Validate(code), "WithContentionStatus(%d)", code)
	return option(func(c *config) { c.contention = code })
}

// WithUnknownHold keeps the key taken for d after a call through [Upstream] whose answer is lost or late, or is a
// report of a gateway that has lost it, or whose client has hung up: the service may still be at work. During d,
// requests get the answer for a key that is held, with the time left in Retry-After. Unless set, the key is free as
// soon as the handler has returned. Choose a d that is longer than the service ever works on a call. An answer that
// has begun is not lost.
//
// Only a Lock without Idempotent or Dedupe needs it. A [WithCooldown] applies as well. WithUnknownHold panics if d is
// not positive, and Lock and LockAll panic if they have it over a store without receipts (package quorum).
func WithUnknownHold(d time.Duration) LockOption {
	must(setting.ValidatePositive(d), "WithUnknownHold(%v)", d)
	return option(func(c *config) { c.unknownHold = d })
}

// WithFinal sets which answers are kept and replayed, by their status alone. The others free the key, so that the
// next request runs the handler again. It panics if final is nil.
//
// Unless set, all answers below 500 are kept except 401, 403, 406, 407, 408, 411, 412, 415, 416, 417, 419, 421, 423,
// 425, 426, 428, 429, 431 and 499, and answers of 400 and above with a Retry-After header: they depend on what is not
// compared, or the same request may well succeed later. A 202 or 303 with Retry-After is kept: the work has begun,
// and must not begin again. A handler that answers 400 or 404 because of a header that is not compared calls
// [DoNotKeep].
//
// Two rules take precedence over final. The first that applies decides:
//
//  1. A refusal is never kept: of a guard of this package further in, of the handler ([Problem.Respond]), or of a
//     guarded service behind a gateway, by its header Latch-Problem and a status of 400 or above. After
//     [lock.Commit], repeats of it get 409.
//  2. After [lock.Commit] every answer is kept. But with [lock.WithTransaction] it is kept only if final returns
//     true. If not, the work is rolled back, and repeats get 409.
//
// A webhook, for example, keeps only successes, so that a redelivery runs again after the bug behind a 400 is fixed:
//
//	latch.WithFinal(func(status int) bool { return status < 300 })
func WithFinal(final func(status int) bool) IdempotentOption {
	mustNot(final == nil, "WithFinal: nil function")
	return option(func(c *config) { c.answers.Final = final })
}

// WithFingerprint sets what two requests with one key must have in common, in addition to the method and the path:
// the result of f. A request with another fingerprint is answered with 422. Unless set, the query, in any order, and
// the body are compared: a body in gzip or deflate by its content, one with another Content-Encoding, or with
// several, as it is sent, a multipart form by its parts, and a form that outer middleware has parsed by its values
// and files. For [Dedupe], the fingerprint decides which requests are the same. WithFingerprint panics if f is nil.
//
//	latch.WithFingerprint(keyfunc.Join(keyfunc.JSON("/amount"), keyfunc.JSON("/currency")))
//	latch.WithFingerprint(keyfunc.CanonicalJSON) // for clients that serialise again when they repeat
func WithFingerprint(f keyfunc.Func) IdempotentOption {
	mustNot(f == nil, "WithFingerprint: nil key function")
	return option(func(c *config) { c.fingerprint = f })
}

// WithInProgressStatus sets the status for a repeat that has waited in vain for the first answer, or does not wait
// ([lock.WithWait]): 409 unless set, or 503, because most HTTP clients do not repeat a 409. Each has Retry-After, and
// the type of its Problem is the same. WithInProgressStatus panics on any other status.
func WithInProgressStatus(code int) IdempotentOption {
	must(setting.InProgressStatuses.Validate(code), "WithInProgressStatus(%d)", code)
	return option(func(c *config) { c.inProgress = code })
}

// WithKeepHeaders names headers that belong to the answer even if middleware outside the guard has set them, such as
// a header that depends on the language of the first request. A replay has the value at the time when the handler
// began its answer. Without it, a record has the headers that the package's documentation lists.
//
// The case of names has no meaning. WithKeepHeaders panics without a name, on a malformed name, and on a header that
// is never recorded, such as Set-Cookie, which is for the first client only.
func WithKeepHeaders(names ...string) IdempotentOption {
	mustNot(len(names) == 0, "WithKeepHeaders: no name")
	keep := make([]string, len(names))
	for i, name := range names {
		keep[i] = http.CanonicalHeaderKey(name)
		mustNot(record.NeverKept(keep[i]), fmt.Sprintf("WithKeepHeaders(%q): no answer is kept with this header", name))
	}
	return option(func(c *config) { c.answers.Keep = append(slices.Clip(c.answers.Keep), keep...) })
}

// WithBodyLimits sets two limits. A request whose body, compressed or decompressed, is longer than the first is
// refused with 413 before the key is claimed. The first is also the limit of [keyfunc.JSON] and [keyfunc.Form] under
// this guard. An answer whose body is longer than the second is sent as it is written, and cannot be replayed. A
// stream takes as much memory as it has sent, at most this limit. With [lock.WithTransaction], such an answer fails
// instead, and the client gets 500. Both limits are 1 MiB unless set. WithBodyLimits panics if one of them is not
// positive.
func WithBodyLimits(request, response int64) IdempotentOption {
	must(setting.ValidateLimits(request, response), "WithBodyLimits(%d, %d)", request, response)
	return option(func(c *config) { c.requestLimit, c.answers.Limit = request, response })
}

// WithName sets the name of the guard in metrics, logs, records and the console: "idempotent" or "dedupe" unless set.
// The keys of records do not contain it, so a guard with a new name finds its old records. WithName panics if name is
// empty, has more than 64 bytes, or contains a control character.
func WithName(name string) IdempotentOption {
	must(setting.ValidateGuardName(name), "WithName(%q)", name)
	return option(func(c *config) { c.guardName = name })
}

// WithLabel sets the text by which operators find a record (package console): the result of f, such as an order
// number or a hash, or "" for no text. Unless set, the text is the scope, in most cases the user ID. While the record
// is kept, the label is in the store in plain text, unless the store is sealed. A label of more than 128 bytes is
// cut, and ends with a hash. f is called with the guard's own request before the handler runs, and must be safe for
// concurrent use. WithLabel panics if f is nil.
func WithLabel(f func(r *http.Request) string) IdempotentOption {
	mustNot(f == nil, "WithLabel: nil function")
	return option(func(c *config) { c.label = f })
}

// WithReplay calls f before each answer of an earlier request is sent to a repeat, to authorise again, because a
// right may have been revoked since, or to change a, a copy of the answer. A new body needs a new ETag and
// Content-Digest, if the answer has them. The record stays as it is.
//
// After a [keyfunc.Error] of f, the repeat is refused with its status, header and detail, and after every other
// error, with 500. The handler does not run. r is the guard's own request, with the context of the repeat and a body
// that was read. f is not called for an answer that cannot be replayed, nor for the first answer, so check before the
// handler too. It must be safe for concurrent use, and a must not be used afterwards. WithReplay panics if f is nil.
func WithReplay(f func(r *http.Request, a *Answer) error) IdempotentOption {
	mustNot(f == nil, "WithReplay: nil function")
	return option(func(c *config) { c.onReplay = f })
}

// WithLifetimeHeader adds the header Idempotency-Key-Lifetime to the answers that are kept, and to the answers of
// repeats: the number of seconds for which the key is remembered at least ([lock.WithKeep]). A later repeat is a new
// request. Over Redis, a repeat costs one more round trip for this time, and lacks the header if that call fails.
// Unless set, there is no such header.
func WithLifetimeHeader() IdempotentOption {
	return option(func(c *config) { c.saysLifetime = true })
}

// must panics if err, a mistake in the arguments of a constructor, is not nil.
func must(err error, format string, args ...any) {
	if err != nil {
		panic(fmt.Sprintf("middleware."+format+": %v", append(args, err)...))
	}
}

func mustNot(wrong bool, mistake string) {
	if wrong {
		panic("middleware." + mistake)
	}
}

func applyAll[C, O any](constructor string, c *C, opts []O, apply func(o O, c *C)) {
	for _, o := range opts {
		mustNot(any(o) == nil, constructor+": nil option")
		apply(o, c)
	}
}
