package integrations_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// A message whose first delivery has died with its process is not handled again: each library
// puts it aside for a person, and goes on with the next one.

func TestAsynqDeadLetter(t *testing.T) {
	t.Parallel()
	locker, server := overRedis(t)
	abandon(t, locker.Store(), lock.Key("task", "order", "order-1"))
	b, s := newAsynqBroker(t, server.Addr()), newStorm(t)
	mux := asynq.NewServeMux()
	mux.Use(onceEachTask(locker))
	mux.HandleFunc("order", func(_ context.Context, task *asynq.Task) error {
		s.happens(string(task.Payload()))
		return nil
	})
	b.serve(t, mux)
	for _, id := range []string{"order-1", "order-2"} {
		require.NoError(t, b.send(t, id, "first"))
	}
	require.Equal(t, 1, b.awaitDone(t), "archived")
	require.Equal(t, map[string]int{"order-2": 1}, s.effects)
}

func TestWatermillDeadLetter(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, memstore.New())
	abandon(t, locker.Store(), lock.Key("message", "order-1"))
	s := newStorm(t)
	broker := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, watermill.NopLogger{})
	require.NoError(t, err)
	require.NoError(t, guardRouter(router, broker, locker))
	handled := make(chan string, 2)
	router.AddConsumerHandler("orders", "orders", broker, func(msg *message.Message) error {
		s.happens(msg.UUID)
		handled <- msg.UUID
		return nil
	})
	ran := make(chan error, 1)
	go func() { ran <- router.Run(context.WithoutCancel(t.Context())) }()
	<-router.Running()
	for _, id := range []string{"order-1", "order-2"} {
		require.NoError(t, broker.Publish("orders", message.NewMessage(id, []byte("tea"))))
	}
	require.Equal(t, "order-2", <-handled)
	dead, err := broker.Subscribe(t.Context(), "orders.dead")
	require.NoError(t, err)
	letter := <-dead
	require.Equal(t, "order-1", letter.UUID)
	letter.Ack()
	require.NoError(t, router.Close())
	require.NoError(t, broker.Close())
	require.NoError(t, <-ran)
	require.Equal(t, map[string]int{"order-2": 1}, s.effects)
}

func TestKafkaDeadLetter(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, memstore.New())
	abandon(t, locker.Store(), lock.Key("record", "order-1"))
	k, s := newKafka(t), newStorm(t)
	producer := k.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ConsumeTopics("orders.dead"))
	defer producer.Close()
	for _, id := range []string{"order-1", "order-2"} {
		k.send(t, producer, id, 0)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.member(ctx, t, "a", func(client *kgo.Client) recordFunc {
			return onceEachRecord(locker, client, func(_ context.Context, record *kgo.Record) error {
				id, err := messageID(record)
				s.happens(id)
				return err
			})
		})
	}()
	eventually(t, k.committed, "records are left")
	end()
	<-ended
	require.Equal(t, map[string]int{"order-2": 1}, s.effects)
	letters := producer.PollFetches(t.Context()).Records()
	require.Len(t, letters, 1)
	id, err := messageID(letters[0])
	require.NoError(t, err)
	require.Equal(t, "order-1", id)
}
