package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// claimFenced claims with a fence. The server does not execute the claim after ctx has ended:
// the command carries the time, by the server's clock, after which it is refused.
//
// The clock of a server is unknown before its first answer. So the first claim carries a time
// that is already over. The server refuses it, unless there is an entry to report, and the
// refusal contains the server's time.
func (s *Store) claimFenced(ctx context.Context, name string, v *entry.Value, c lock.Claim) (lock.Entry, error) {
	server, err := s.nodes.route(ctx, name)
	if err != nil {
		return lock.Entry{}, err
	}
	clock := server.clock
	deadline, guarded := ctx.Deadline()
	// Two tries: after a failover another server may refuse the claim, and its refusal
	// contains the time for the second try.
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
