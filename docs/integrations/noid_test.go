package integrations_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

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
	id, err := messageID(&kgo.Record{Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte("1")}}})
	require.NoError(t, err)
	require.Equal(t, "1", id)

	locker := lock.New(memstore.New())
	handle := onceEachMessage(locker)(func(*message.Message) ([]*message.Message, error) { return nil, errors.New("it ran") })
	_, err = handle(message.NewMessage("", nil))
	require.ErrorIs(t, err, errNoID)
	require.NoError(t, locker.Close(t.Context()))

	client := asynq.NewClient(asynq.RedisClientOpt{Addr: "127.0.0.1:1"})
	_, err = client.Enqueue(asynq.NewTask("order", nil), asynq.TaskID(""))
	require.ErrorContains(t, err, "task ID cannot be empty")
	require.NoError(t, client.Close())
}
