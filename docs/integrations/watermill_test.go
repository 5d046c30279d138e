package integrations_test

import (
	"context"
	"encoding/json"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/httplatch/httplatch/lock"
)

// onceEachMessage handles each message once, however often the broker delivers it. The
// messages that the handler has produced are its receipt: a redelivery publishes the same
// ones, with the same UUIDs.
func onceEachMessage(locker *lock.Locker) message.HandlerMiddleware {
	return func(work message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) (produced []*message.Message, err error) {
			if msg.UUID == "" {
				return nil, errNoID
			}
			receipt, _, err := locker.Once(msg.Context(), lock.Key("message", msg.UUID), nil, func(ctx context.Context) ([]byte, error) {
				msg.SetContext(ctx)
				produced, err := work(msg)
				if err != nil || len(produced) == 0 {
					return nil, err
				}
				return json.Marshal(produced)
			})
			if err == nil && len(receipt) > 0 {
				err = json.Unmarshal(receipt, &produced)
			}
			return produced, err
		}
	}
}

// guardRouter has each message handled once. What no redelivery can help goes to "orders.dead".
func guardRouter(router *message.Router, pub message.Publisher, locker *lock.Locker) error {
	deadLetters, err := middleware.PoisonQueueWithFilter(pub, "orders.dead", permanent)
	if err != nil {
		return err
	}
	router.AddMiddleware(deadLetters, onceEachMessage(locker)) // in this order
	return nil
}
