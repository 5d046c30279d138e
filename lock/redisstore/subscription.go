package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// subscription is a redis.PubSub that may have become unusable: while it receives, it dials with
// its mutex locked, and if a user's hook panics during the dial, the mutex stays locked.
type subscription struct {
	sub      *redis.PubSub
	received chan struct{} // closed when receiving has ended
	broken   bool          // by a panic
}

// use makes a call that may wait for the mutex, for a limited time. After a failure, go-redis
// repeats the call over the next connection. ok is false if a hook has panicked: then go-redis does
// not repeat the call.
func (s *subscription) use(ctx context.Context, call func(ctx context.Context) error) (ok bool) {
	if s.isBroken() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	_, err := untilDone(ctx, func() (struct{}, error) { return struct{}{}, call(ctx) })
	return !errors.Is(err, failure.ErrPanicked) && !errors.Is(err, failure.ErrUnsettled)
}

// end closes the subscription, and waits until its receiver has ended. A broken
// subscription has no connection to close.
func (s *subscription) end() {
	if s.isBroken() {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.sub.Close()
	}()
	<-s.received
	if !s.broken {
		<-closed
	}
}

func (s *subscription) isBroken() bool {
	select {
	case <-s.received:
		return s.broken
	default:
		return false
	}
}
