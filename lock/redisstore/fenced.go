package redisstore

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// claimFenced claims with a fence, and with the server's word that it does not
// execute the claim after ctx has ended: the command carries the time, by the
// server's clock, after which it is refused.
//
// The clock of a server that was not spoken to yet is not known. The first
// claim is then sent as one that is late already: it is refused, unless there
// is an entry to report, and the refusal tells the time.
func (s *Store) claimFenced(ctx context.Context, name string, v *value, c lock.Claim) (lock.Entry, error) {
	server, err := s.to.route(ctx, name)
	if err != nil {
		return lock.Entry{}, err
	}
	clock := &server.clock
	deadline, guarded := ctx.Deadline()
	// Twice: a refusal says what the clock is, which after a failover is that of
	// another server.
	for range 2 {
		notAfter := int64(0)
		if guarded {
			notAfter = clock.at(deadline)
		}
		sent := time.Now()
		r, err := s.claimScript(ctx, name, v, c, strconv.FormatInt(notAfter, 10))
		if err != nil {
			return lock.Entry{}, err
		}
		clock.heard(sent, time.Now(), r.now)
		if !r.late {
			return r.entry, nil
		}
	}
	return lock.Entry{}, notApplied("late", errLate)
}

// clock is what is known about a server's clock: it is ahead of the monotonic
// time since base by at least low and at most high.
type clock struct {
	base time.Time

	mu        sync.Mutex
	known     bool
	low, high time.Duration
}

// heard takes in that the server's clock was at now, some time between sent and
// received. Both are bounds of the offset; if they contradict what is known, a
// clock was set or another server has taken over, and only they count.
func (c *clock) heard(sent, received time.Time, now time.Duration) {
	low, high := now-received.Sub(c.base), now-sent.Sub(c.base)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known && low <= c.high && high >= c.low {
		low, high = max(low, c.low), min(high, c.high)
	}
	c.known, c.low, c.high = true, low, high
}

// at is t by the server's clock, in µs and rather too early than too late, or a
// time long past if the clock is not known.
func (c *clock) at(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 1
	}
	return (t.Sub(c.base) + c.low).Microseconds()
}
