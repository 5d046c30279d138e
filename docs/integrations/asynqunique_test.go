package integrations_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

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
