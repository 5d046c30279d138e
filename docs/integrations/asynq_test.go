package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/httplatch/httplatch/lock"
)

// onceEachTask runs each task once, however often asynq delivers it.
func onceEachTask(locker *lock.Locker) asynq.MiddlewareFunc {
	return func(work asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx) // which the producer has chosen, with asynq.TaskID
			_, _, err := locker.Once(ctx, lock.Key("task", task.Type(), id), nil, func(ctx context.Context) ([]byte, error) {
				return nil, work.ProcessTask(ctx, task)
			})
			if permanent(err) {
				return fmt.Errorf("%w: %w", asynq.SkipRetry, err) // archived, for a person to look at
			}
			return err
		})
	}
}

func asynqConfig() asynq.Config {
	config := asynq.Config{
		// A delivery that did not run is no failure of the task: it costs none of its retries.
		IsFailure: func(err error) bool { return !errors.Is(err, lock.ErrHeld) && !errors.Is(err, lock.ErrUnavailable) },
		RetryDelayFunc: func(n int, err error, task *asynq.Task) time.Duration {
			if errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrUnavailable) {
				return 5 * time.Second
			}
			return asynq.DefaultRetryDelayFunc(n, err, task)
		},
	}
	return config
}
