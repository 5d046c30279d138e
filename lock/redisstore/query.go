package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// query is a read-only command.
type query struct{ *redis.Cmd }

// NoRetry makes go-redis return the first failure: for a caller with a deadline, an early error is
// better than a retry.
func (query) NoRetry() bool { return true }

// sender is the part of a client that a query needs.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// ask sends a query. It returns when ctx has ended, whatever the client does.
func ask(ctx context.Context, client sender, args ...any) (any, error) {
	return untilDone(ctx, func() (any, error) {
		q := query{redis.NewCmd(ctx, args...)}
		if err := client.Process(ctx, q); err != nil {
			return nil, failure.NotApplied(failure.Kind(err), err)
		}
		return q.Val(), nil
	})
}
