package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// foreign sends each command through a client, on a goroutine of its own, since hooks and
// wrappers may take any time.
type foreign struct{ client redis.UniversalClient }

// single is a command that go-redis sends once. A retry would mistake the entry that the first
// send has made for the entry of another holder.
type single struct{ *redis.Cmd }

// NoRetry makes go-redis return the first failure.
func (single) NoRetry() bool { return true }

// Without NoRetry in Cmder, before v9.19, go-redis would send each command four times.
var _ interface{ NoRetry() bool } = redis.Cmder(nil)

// Do sends c, and returns when it is answered, or when its caller leaves.
func (f foreign) Do(ctx context.Context, c *wire.Command) (any, error) {
	caller, gone := ctx, ctx.Done()
	if try, ok := ctx.(*send.Try); ok {
		caller, gone = try.Caller, try.Gone
	}
	select {
	case <-gone:
		return nil, failure.NotApplied("cancelled", caller.Err())
	default:
	}
	all, batch := c.Parts(), c.Batch // c may be freed while the client still sends
	ended := failure.Apart(func() (any, error) { return f.process(ctx, all, batch) })
	why := send.ErrGivenUp
	select {
	case r := <-ended:
		return r.Value, classified(r.Err)
	case <-ctx.Done():
	case <-gone:
		why = caller.Err()
	}
	flight := send.Depart(ctx)
	go func() {
		switch err := classified((<-ended).Err); {
		case errors.Is(err, lock.ErrNotApplied):
			flight.Arrive(send.Nothing)
		case err == nil, failure.IsReply(err):
			flight.Arrive(send.Answered)
		default:
			flight.Arrive(send.Unanswered)
		}
	}()
	return nil, failure.Unknown(failure.Kind(why), why)
}

// classified returns the error of a command, which a hook may have ended.
func classified(err error) error {
	if err == nil || failure.ClassOf(err) != "" {
		return err
	}
	return failure.Unknown(failure.Kind(err), err)
}

// process sends commands, one after the other.
func (f foreign) process(ctx context.Context, all [][]any, batch bool) (any, error) {
	answers := make([]any, len(all))
	for i, args := range all {
		cmd := single{redis.NewCmd(ctx, args...)}
		err := f.client.Process(ctx, cmd)
		switch {
		case err == nil:
			answers[i] = cmd.Val()
		case errors.Is(err, redis.Nil):
		case batch && failure.IsReply(err):
			answers[i] = err
		case failure.IsReply(err):
			return nil, failure.Failed(err, true) // a hook or a wrapper may have sent it twice
		case failure.NeverDialed(err), failure.Kind(err) == "pool", failure.Kind(err) == "closed":
			return nil, failure.NotSent(err)
		default:
			return nil, err
		}
	}
	if batch {
		return answers, nil
	}
	return answers[0], nil
}

// Close does nothing: the client belongs to the user.
func (foreign) Close(context.Context) {}
