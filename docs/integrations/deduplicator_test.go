package integrations_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
)

// Without settings, watermill's Deduplicator distinguishes messages by the Adler-32 checksum of
// their payloads: equal orders are one, and so are some that differ.
func TestDeduplicatorByDefault(t *testing.T) {
	t.Parallel()
	orders := []*message.Message{
		message.NewMessage("a", []byte(`{"order":1020}`)),
		message.NewMessage("b", []byte(`{"order":1101}`)), // with the same checksum
		message.NewMessage("c", []byte(`{"sku":"tea"}`)),
		message.NewMessage("d", []byte(`{"sku":"tea"}`)), // of another customer
	}
	tests := map[string]struct {
		guard message.HandlerMiddleware
		want  []string
	}{
		"Deduplicator": {(&middleware.Deduplicator{}).Middleware, []string{"a", "c"}},
		"Once":         {onceEachMessage(newLocker(t, memstore.New())), []string{"a", "b", "c", "d"}},
	}
	for name, tt := range tests {
		var handled []string
		h := tt.guard(func(msg *message.Message) ([]*message.Message, error) {
			handled = append(handled, msg.UUID)
			return nil, nil
		})
		for _, m := range orders {
			_, err := h(m)
			require.NoError(t, err, name)
		}
		require.Equal(t, tt.want, handled, name)
	}
}
