package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
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

// asynqBroker is asynq on a real Redis, with two queues.
type asynqBroker struct {
	addr      string
	client    *asynq.Client
	inspector *asynq.Inspector
}

var asynqQueues = map[string]int{"first": 1, "second": 1}

func newAsynqBroker(t *testing.T, addr string) *asynqBroker {
	t.Helper()
	options := asynq.RedisClientOpt{Addr: addr}
	b := &asynqBroker{addr, asynq.NewClient(options), asynq.NewInspector(options)}
	t.Cleanup(func() {
		require.NoError(t, b.client.Close())
		require.NoError(t, b.inspector.Close())
	})
	return b
}

// asynqServer has the configuration of the page except for its pauses. Without queues, it serves the default one.
func asynqServer(addr string, queues map[string]int) *asynq.Server {
	config := asynqConfig()
	config.Queues, config.Concurrency, config.LogLevel = queues, 16, asynq.FatalLevel
	config.TaskCheckInterval, config.DelayedTaskCheckInterval = 5*time.Millisecond, 5*time.Millisecond
	config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Millisecond }
	return asynq.NewServer(asynq.RedisClientOpt{Addr: addr}, config)
}

func (b *asynqBroker) serve(t *testing.T, queues map[string]int, handler asynq.Handler) {
	t.Helper()
	server := asynqServer(b.addr, queues)
	require.NoError(t, server.Start(handler))
	t.Cleanup(server.Shutdown)
}

func (b *asynqBroker) send(t *testing.T, id, queue string) {
	t.Helper()
	must.Get(b.client.Enqueue(asynq.NewTask("order", []byte(id)), asynq.TaskID(id), asynq.Queue(queue)))(t)
}

// awaitDone waits until there is nothing left to deliver, and returns how many tasks were archived.
func (b *asynqBroker) awaitDone(t *testing.T) (archived int) {
	t.Helper()
	eventually(t, func() bool {
		open := 0
		archived = 0
		queues, err := b.inspector.Queues()
		if err != nil {
			return false
		}
		for _, queue := range queues {
			info, err := b.inspector.GetQueueInfo(queue)
			if err != nil {
				return false
			}
			open += info.Pending + info.Active + info.Scheduled + info.Retry
			archived += info.Archived
		}
		return open == 0
	}, "tasks are left")
	return archived
}

// The broker has each task twice, in two queues, whose workers take it at about the same
// time. Handlers fail at random, before and after the effect, and acknowledgements are lost.
func TestAsynqStorm(t *testing.T) {
	t.Parallel()
	for name, guarded := range map[string]bool{"Once": true, "nothing": false} {
		parallel.Run(t, name, func(t *testing.T) {
			locker, server := overRedis(t)
			b, s, ids := newAsynqBroker(t, server.Addr()), newStorm(t), messages(150)
			mux := asynq.NewServeMux()
			mux.Use(func(next asynq.Handler) asynq.Handler {
				return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					if err := next.ProcessTask(ctx, task); err != nil {
						return err
					}
					if s.loses(string(task.Payload())) {
						return errors.New("the acknowledgement is lost")
					}
					return nil
				})
			})
			if guarded {
				mux.Use(onceEachTask(locker))
			}
			mux.HandleFunc("order", func(ctx context.Context, task *asynq.Task) error { return s.work(ctx, string(task.Payload())) })
			b.serve(t, asynqQueues, mux)
			for _, id := range ids {
				for queue := range asynqQueues {
					b.send(t, id, queue)
				}
			}
			require.Zero(t, b.awaitDone(t), "archived")
			if guarded {
				s.requireExact(t, ids)
				return
			}
			require.NotEmpty(t, s.outcome(ids).doubled)
		})
	}
}

// asynq.Unique and asynq.TaskID refuse a task that is enqueued while an equal one waits or runs. What is enqueued after
// that one is done is another task, and is run again: with Unique before its time is over, too.
func TestAsynqUnique(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		option  asynq.Option
		guarded bool
		refused error
		want    int
	}{
		"Unique":          {asynq.Unique(time.Hour), false, asynq.ErrDuplicateTask, 2},
		"TaskID":          {asynq.TaskID("order-1"), false, asynq.ErrTaskIDConflict, 2},
		"TaskID and Once": {asynq.TaskID("order-1"), true, asynq.ErrTaskIDConflict, 1},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			locker, server := overRedis(t)
			b, s := newAsynqBroker(t, server.Addr()), newStorm(t)
			send := func() error {
				_, err := b.client.Enqueue(asynq.NewTask("order", []byte("order-1")), tt.option)
				return err
			}
			require.NoError(t, send())
			require.ErrorIs(t, send(), tt.refused, "while the first waits")
			mux := asynq.NewServeMux()
			if tt.guarded {
				mux.Use(onceEachTask(locker))
			}
			mux.HandleFunc("order", func(_ context.Context, task *asynq.Task) error {
				s.happens(string(task.Payload()))
				return nil
			})
			b.serve(t, nil, mux)
			b.awaitDone(t)
			require.NoError(t, send(), "once the first is done, it is a new task")
			b.awaitDone(t)
			s.mu.Lock()
			defer s.mu.Unlock()
			require.Equal(t, map[string]int{"order-1": tt.want}, s.effects)
		})
	}
}
