package middleware

import (
	"net/http"
	"strconv"
	"time"

	"github.com/httplatch/httplatch/middleware/internal/recorder"
)

// WithLifetimeHeader adds the header Idempotency-Key-Lifetime to the answers that are kept, and to
// the answers of repeats. Its value is the number of seconds for which the key is remembered at
// least. A later repeat is a new request. The header is not recorded: each repeat gets the time
// that is left of [lock.WithKeep]. Over Redis, a repeat costs one more round trip for this time,
// and lacks the header if that call fails. Unless set, there is no such header.
func WithLifetimeHeader() IdempotentOption {
	return idempotentOption(func(c *idempotentConfig) { c.saysLifetime = true })
}

// lifetime is the time for which a key is remembered, 0 if the guard does not announce it.
type lifetime time.Duration

// lifetimeOf returns d if the guard announces for how long a key is remembered, else 0.
func (c *idempotentConfig) lifetimeOf(d time.Duration) lifetime {
	if !c.saysLifetime {
		return 0
	}
	return lifetime(d)
}

// add adds the header to an answer. It rounds down to whole seconds.
func (l lifetime) add(h http.Header) {
	if s := time.Duration(l) / time.Second; s > 0 {
		h[recorder.LifetimeHeader] = []string{strconv.FormatInt(int64(s), 10)}
	}
}
