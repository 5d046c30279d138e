package integrations_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

var errNoID = errors.New("a message without an ID")

// permanent reports whether every redelivery will be refused as this one was, until a person
// has looked.
func permanent(err error) bool {
	return errors.Is(err, lock.ErrAbandoned) || errors.Is(err, lock.ErrMismatch) || errors.Is(err, errNoID)
}

// abandon leaves what a process leaves that dies while it works on key.
func abandon(t *testing.T, store lock.Store, key string) {
	t.Helper()
	record := keytext.Record(key)
	must.Get(store.Claim(t.Context(), record, lock.Claim{Token: "dead", Attempt: 1, Lease: time.Millisecond, Linger: time.Hour}))(t)
	eventually(t, func() bool {
		entry, err := store.Get(t.Context(), record)
		return err == nil && entry.State == lock.Abandoned
	}, "the lease does not end")
}

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
	b.serve(t, asynqQueues, mux)
	for _, id := range []string{"order-1", "order-2"} {
		b.send(t, id, "first")
	}
	require.Equal(t, 1, b.awaitDone(t), "archived")
	require.Equal(t, map[string]int{"order-2": 1}, s.effects)
}

func TestWatermillDeadLetter(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, memstore.New())
	abandon(t, locker.Store(), lock.Key("message", "order-1"))
	s, handled := newStorm(t), make(chan string, 2)
	broker, stop := startRouter(t, gochannel.Config{Persistent: true}, func(router *message.Router, broker *gochannel.GoChannel) {
		require.NoError(t, guardRouter(router, broker, locker))
		router.AddConsumerHandler("orders", "orders", broker, func(msg *message.Message) error {
			s.happens(msg.UUID)
			handled <- msg.UUID
			return nil
		})
	})
	for _, id := range []string{"order-1", "order-2"} {
		require.NoError(t, broker.Publish("orders", message.NewMessage(id, []byte("tea"))))
	}
	require.Equal(t, "order-2", <-handled)
	dead := must.Get(broker.Subscribe(t.Context(), "orders.dead"))(t)
	letter := <-dead
	require.Equal(t, "order-1", letter.UUID)
	letter.Ack()
	stop()
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
	require.Equal(t, "order-1", must.Get(messageID(letters[0]))(t))
}

// TestMessagesWithoutAnID: messages without an ID, or with an empty one, share no key. They
// are refused before any work, and asynq takes none.
func TestMessagesWithoutAnID(t *testing.T) {
	for name, headers := range map[string][]kgo.RecordHeader{
		"no header": nil, "another": {{Key: "trace", Value: []byte("1")}}, "empty": {{Key: "message-id"}},
	} {
		_, err := messageID(&kgo.Record{Headers: headers})
		require.ErrorIs(t, err, errNoID, name)
		require.True(t, permanent(err))
	}
	require.Equal(t, "1", must.Get(messageID(&kgo.Record{Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte("1")}}}))(t))

	locker := lock.New(memstore.New())
	handle := onceEachMessage(locker)(func(*message.Message) ([]*message.Message, error) { return nil, errors.New("it ran") })
	_, err := handle(message.NewMessage("", nil))
	require.ErrorIs(t, err, errNoID)
	require.NoError(t, locker.Close(t.Context()))

	client := asynq.NewClient(asynq.RedisClientOpt{Addr: "127.0.0.1:1"})
	_, err = client.Enqueue(asynq.NewTask("order", nil), asynq.TaskID(""))
	require.ErrorContains(t, err, "task ID cannot be empty")
	require.NoError(t, client.Close())
}
