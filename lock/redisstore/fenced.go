package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// claimFenced claims with a fence. The server does not execute the claim after ctx has ended:
// the command carries the time, by the server's clock, after which it is refused.
//
// The clock of a server is unknown before its first answer. So the first claim carries a time
// that is already over. The server refuses it, unless there is an entry to report, and the
// refusal contains the server's time.
func (s *Store) claimFenced(ctx context.Context, name string, value []byte, c *lock.Claim) (e lock.Entry, err error) {
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
		var now time.Duration
		if e, now, err = s.claimScript(ctx, name, value, c, strconv.FormatInt(notAfter, 10)); err != nil && failure.ClassOf(err) != "late" {
			return lock.Entry{}, err
		}
		if clock.Heard(sent, time.Now(), now); err == nil {
			return e, nil
		}
	}
	return lock.Entry{}, err
}
