package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// claimFenced claims with a fence, and with the server's word that it does not
// execute the claim after ctx has ended: the command carries the time, by the
// server's clock, after which it is refused.
//
// The clock of a server that was not spoken to yet is not known. The first
// claim is then sent as one that is late already: it is refused, unless there
// is an entry to report, and the refusal tells the time.
func (s *Store) claimFenced(ctx context.Context, name string, v *entry.Value, c lock.Claim) (lock.Entry, error) {
	server, err := s.to.route(ctx, name)
	if err != nil {
		return lock.Entry{}, err
	}
	clock := server.clock
	deadline, guarded := ctx.Deadline()
	// Twice: a refusal says what the clock is, which after a failover is that of
	// another server.
	for range 2 {
		notAfter := int64(0)
		if guarded {
			notAfter = clock.At(deadline)
		}
		sent := time.Now()
		r, err := s.claimScript(ctx, name, v, c, strconv.FormatInt(notAfter, 10))
		if err != nil {
			return lock.Entry{}, err
		}
		clock.Heard(sent, time.Now(), r.now)
		if !r.late {
			return r.entry, nil
		}
	}
	return lock.Entry{}, failure.NotApplied("late", errLate)
}
