package middleware

import (
	"net/http"
	"strconv"
	"time"

	"github.com/httplatch/httplatch/middleware/internal/recorder"
)

// WithLifetimeHeader adds Idempotency-Key-Lifetime to the answers that are kept, and to the
// answers of repeats: for how many more seconds, at least, the key is remembered. A repeat that
// comes later is a new request. No record has the header, so each repeat gets the time that is
// left of [lock.WithKeep]. Over Redis, a repeat costs one more round trip for that, and has no
// header if it fails. There is no such header unless set.
func WithLifetimeHeader() IdempotentOption {
	return idempotentOption(func(c *idempotentConfig) { c.saysLifetime = true })
}

// lifetime is the time for which a key is remembered, 0 if it is not said.
type lifetime time.Duration

// lifetimeOf returns d if the guard says for how long a key is remembered.
func (c *idempotentConfig) lifetimeOf(d time.Duration) lifetime {
	if !c.saysLifetime {
		return 0
	}
	return lifetime(d)
}

// add adds the header to an answer. The second that has begun does not count.
func (l lifetime) add(h http.Header) {
	if s := time.Duration(l) / time.Second; s > 0 {
		h[recorder.LifetimeHeader] = []string{strconv.FormatInt(int64(s), 10)}
	}
}
