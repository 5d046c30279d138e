package integrations_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

// asynqBroker is asynq on a real Redis, with two queues.
type asynqBroker struct {
	options   asynq.RedisClientOpt
	client    *asynq.Client
	inspector *asynq.Inspector
}

var asynqQueues = map[string]int{"first": 1, "second": 1}

func newAsynqBroker(t *testing.T, addr string) *asynqBroker {
	t.Helper()
	options := asynq.RedisClientOpt{Addr: addr}
	b := &asynqBroker{options, asynq.NewClient(options), asynq.NewInspector(options)}
	t.Cleanup(func() {
		require.NoError(t, b.client.Close())
		require.NoError(t, b.inspector.Close())
	})
	return b
}

// serve handles the tasks, with the configuration of the page except for its pauses.
func (b *asynqBroker) serve(t *testing.T, handler asynq.Handler) {
	t.Helper()
	config := asynqConfig()
	config.Queues, config.Concurrency, config.LogLevel = asynqQueues, 16, asynq.FatalLevel
	config.TaskCheckInterval, config.DelayedTaskCheckInterval = 5*time.Millisecond, 5*time.Millisecond
	config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Millisecond }
	server := asynq.NewServer(b.options, config)
	require.NoError(t, server.Start(handler))
	t.Cleanup(server.Shutdown)
}

// send enqueues a task in one of the queues.
func (b *asynqBroker) send(t *testing.T, id, queue string, options ...asynq.Option) error {
	t.Helper()
	_, err := b.client.Enqueue(asynq.NewTask("order", []byte(id)), append(options, asynq.TaskID(id), asynq.Queue(queue))...)
	return err
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
	tests := []struct {
		name    string
		guarded bool
	}{{"Once", true}, {"nothing", false}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
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
			if tt.guarded {
				mux.Use(onceEachTask(locker))
			}
			mux.HandleFunc("order", func(ctx context.Context, task *asynq.Task) error { return s.work(ctx, string(task.Payload())) })
			b.serve(t, mux)
			for _, id := range ids {
				for queue := range asynqQueues {
					require.NoError(t, b.send(t, id, queue))
				}
			}
			require.Zero(t, b.awaitDone(t), "archived")
			if tt.guarded {
				s.requireExact(t, ids)
				return
			}
			require.NotEmpty(t, s.outcome(ids).doubled)
		})
	}
}

// asynq.Unique and asynq.TaskID refuse a task that is enqueued while an equal one waits or
// runs. What is enqueued after that one is done is another task, and is run again: with
// Unique before its time is over, too.
func TestAsynqUnique(t *testing.T) {
	t.Parallel()
	unique := func() []asynq.Option { return []asynq.Option{asynq.Unique(time.Hour)} }
	tests := []struct {
		name    string
		options func() []asynq.Option
		guarded bool
		refused error
		want    int
	}{
		{"Unique", unique, false, asynq.ErrDuplicateTask, 2},
		{"TaskID", func() []asynq.Option { return []asynq.Option{asynq.TaskID("order-1")} }, false, asynq.ErrTaskIDConflict, 2},
		{"TaskID and Once", func() []asynq.Option { return []asynq.Option{asynq.TaskID("order-1")} }, true, asynq.ErrTaskIDConflict, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			locker, server := overRedis(t)
			b, s := newAsynqBroker(t, server.Addr()), newStorm(t)
			send := func(queue string) error {
				_, err := b.client.Enqueue(asynq.NewTask("order", []byte("order-1")), append(tt.options(), asynq.Queue(queue))...)
				return err
			}
			require.NoError(t, send("first"))
			require.ErrorIs(t, send("first"), tt.refused, "while the first waits")

			mux := asynq.NewServeMux()
			if tt.guarded {
				mux.Use(onceEachTask(locker))
			}
			mux.HandleFunc("order", func(_ context.Context, task *asynq.Task) error {
				s.happens(string(task.Payload()))
				return nil
			})
			b.serve(t, mux)
			b.awaitDone(t)
			require.NoError(t, send("first"), "once the first is done, it is a new task")
			b.awaitDone(t)
			s.mu.Lock()
			defer s.mu.Unlock()
			require.Equal(t, map[string]int{"order-1": tt.want}, s.effects)
		})
	}
}
