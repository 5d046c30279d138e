package client

import (
	"crypto/rand"
	"math"
	"net/http"
	"time"
)

// The defaults of the options.
const (
	defaultAttempts   = 4
	defaultFirst      = 100 * time.Millisecond
	defaultLongest    = 5 * time.Second
	defaultMaxWait    = time.Minute
	defaultBodyLimit  = 1 << 20
	defaultPerRequest = 0.2
	defaultBurst      = 10
)

// Option is a setting of [Transport].
type Option interface{ apply(c *config) }

type option func(c *config)

func (o option) apply(c *config) { o(c) }

type config struct {
	attempts       int
	first, longest time.Duration
	maxWait        time.Duration
	bodyLimit      int64
	perRequest     float64
	burst          int
	newKey         func(*http.Request) string
	quoted         bool
	hook           func(Attempt)
}

func newConfig(opts []Option) config {
	c := config{
		attempts: defaultAttempts,
		first:    defaultFirst, longest: defaultLongest,
		maxWait:    defaultMaxWait,
		bodyLimit:  defaultBodyLimit,
		perRequest: defaultPerRequest, burst: defaultBurst,
		newKey: func(*http.Request) string { return rand.Text() },
	}
	for _, o := range opts {
		if o == nil {
			panic("client: nil Option")
		}
		o.apply(&c)
	}
	return c
}

// WithAttempts limits how often one request is sent; 4 unless set. An attempt whose answer is
// in-progress does not count: the first request still runs, and [WithMaxWait] limits the wait
// for its answer. With 1, no request is sent again, not even after in-progress. WithAttempts
// panics if n is less than 1.
func WithAttempts(n int) Option {
	if n < 1 {
		panic("client: WithAttempts needs at least 1")
	}
	return option(func(c *config) { c.attempts = n })
}

// WithBackoff sets the pause before the second attempt and the longest pause; 100 ms and
// 5 s unless set. Each pause is twice as long as the one before, less a random part of up
// to a half. A Retry-After comes in addition. It panics unless 0 < first <= longest.
func WithBackoff(first, longest time.Duration) Option {
	if first <= 0 || longest < first {
		panic("client: WithBackoff needs 0 < first <= longest")
	}
	return option(func(c *config) { c.first, c.longest = first, longest })
}

// WithMaxWait limits the time between the beginnings of the first and the last attempt; 1
// minute unless set. An answer whose Retry-After would exceed this time is returned at once. The
// context's deadline applies as well. WithMaxWait panics if d is negative.
func WithMaxWait(d time.Duration) Option {
	if d < 0 {
		panic("client: WithMaxWait needs a duration that is not negative")
	}
	return option(func(c *config) { c.maxWait = d })
}

// WithBodyLimit sets how many bytes of a request body are kept if the body cannot be read again
// ([http.Request.GetBody] is nil); 1 MiB unless set. A request is not sent again if its
// ContentLength is larger, or if more of its body was read. With 0, no body is kept.
// WithBodyLimit panics if bytes is negative.
func WithBodyLimit(bytes int64) Option {
	if bytes < 0 {
		panic("client: WithBodyLimit needs a number that is not negative")
	}
	return option(func(c *config) { c.bodyLimit = bytes })
}

// WithBudget limits how many requests of this transport are sent again, so that clients
// that repeat do not double the load of a failing server: perRequest for each request,
// and burst at once; 0.2 and 10 unless set. One more repetition is allowed every ten seconds,
// for clients that rarely send. Repetitions after in-progress do not count, because a server that
// gives this answer is not failing. When the budget is used up, the answer or the error is returned
// unchanged. WithBudget panics if a number is negative or not finite.
func WithBudget(perRequest float64, burst int) Option {
	if !(perRequest >= 0) || math.IsInf(perRequest, 1) || burst < 0 {
		panic("client: WithBudget needs numbers that are finite and not negative")
	}
	return option(func(c *config) { c.perRequest, c.burst = perRequest, burst })
}

// WithNewKey sets the function that makes a key for each request without one. Unless set, a key
// is 26 random characters ([rand.Text]). For requests that a guarded handler sends, no key is
// made ([Step]). f must be safe for concurrent use, and must not read the request's body or
// change the request. If f returns "", the request is sent without a key. WithNewKey panics if
// f is nil.
//
// Two submissions must never get the same key. So do not derive the key from the content of the
// request: two equal orders would share it.
func WithNewKey(f func(*http.Request) string) Option {
	if f == nil {
		panic("client: WithNewKey needs a function")
	}
	return option(func(c *config) { c.newKey = f })
}

// WithQuotedKeys sends keys in quotes, "8e03978e", as a string of RFC 8941, which revision 07
// of the draft of the Idempotency-Key header demands. Unless set, they are sent without quotes,
// as most servers expect. httplatch accepts both as the same key. A header that the request
// already has is sent unchanged.
func WithQuotedKeys() Option {
	return option(func(c *config) { c.quoted = true })
}

// WithHook calls f after each attempt, for logs and metrics; it is not called unless
// set. f runs in the goroutine of the request, must be safe for concurrent use, and
// should return soon. An attempt whose answer breaks off while its body is read is
// reported a second time, with the error. It panics if f is nil.
func WithHook(f func(Attempt)) Option {
	if f == nil {
		panic("client: WithHook needs a function")
	}
	return option(func(c *config) { c.hook = f })
}

// Attempt is the outcome of one attempt at a request.
type Attempt struct {
	Request *http.Request // with its Idempotency-Key; do not change it, nor read its body
	Number  int           // 1 for the first
	Status  int           // of the answer; 0 if there is none
	Problem string        // the kind of its problem ([Problem.Kind]), or ""
	Err     error         // if there is no answer, or it broke off
	Again   bool          // whether it is sent again
	Wait    time.Duration // the pause until then; 0 unless Again
	Reason  string        // why it is sent again, or not: for people; the text may change
}
