package integrations_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"
)

// unreliable is a publisher whose calls fail at random, before or after the message is sent.
type unreliable struct {
	message.Publisher

	storm     *storm
	published atomic.Int64 // messages that were sent
}

func (u *unreliable) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		before, after := u.storm.loses("publish "+m.UUID), u.storm.loses("published "+m.UUID)
		if before {
			return errors.New("the message is not published")
		}
		if err := u.Publisher.Publish(topic, m); err != nil {
			return err
		}
		u.published.Add(1)
		if after {
			return errors.New("the answer of the broker is lost")
		}
	}
	return nil
}

// watermillStorm sends each message twice, to two subscribers each, which handle it at the
// same time. The handlers of "orders" produce an e-mail for each order, and those of
// "mails" send it.
type watermillStorm struct {
	orders, mails *storm
	mailOf        sync.Map // of UUIDs of mails: the order
}

func runWatermillStorm(t *testing.T, ids []string, guards ...message.HandlerMiddleware) *watermillStorm {
	t.Helper()
	w := &watermillStorm{orders: newStorm(t), mails: newStorm(t)}
	broker := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 16}, watermill.NopLogger{})
	pub := &unreliable{Publisher: broker, storm: newStorm(t)}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, watermill.NopLogger{})
	require.NoError(t, err)
	var acked sync.Map // of topics: *atomic.Int64
	acks := func(topic string) *atomic.Int64 {
		n, _ := acked.LoadOrStore(topic, new(atomic.Int64))
		return n.(*atomic.Int64)
	}
	count := func(topic string) message.Subscriber {
		sub, err := message.MessageTransformSubscriberDecorator(func(msg *message.Message) {
			go func() {
				select {
				case <-msg.Acked():
					acks(topic).Add(1)
				case <-msg.Nacked():
				case <-t.Context().Done():
				}
			}()
		})(broker)
		require.NoError(t, err)
		return sub
	}
	router.AddMiddleware(guards...)
	for _, worker := range []string{"a", "b"} {
		router.AddHandler("orders "+worker, "orders", count("orders"), "mails", pub, func(msg *message.Message) ([]*message.Message, error) {
			if err := w.orders.work(msg.Context(), msg.UUID); err != nil {
				return nil, err
			}
			mail := message.NewMessage(watermill.NewUUID(), []byte("thank you for "+msg.UUID))
			mail.Metadata.Set("order", msg.UUID)
			return []*message.Message{mail}, nil
		})
		router.AddConsumerHandler("mails "+worker, "mails", count("mails"), func(msg *message.Message) error {
			w.mailOf.Store(msg.UUID, msg.Metadata.Get("order"))
			return w.mails.work(msg.Context(), msg.UUID)
		})
	}
	ran := make(chan error, 1)
	go func() { ran <- router.Run(context.WithoutCancel(t.Context())) }()
	<-router.Running()
	for _, id := range w.orders.twice(ids) {
		require.NoError(t, broker.Publish("orders", message.NewMessage(id, []byte("tea"))))
	}
	eventually(t, func() bool {
		published := pub.published.Load()
		return acks("orders").Load() == int64(4*len(ids)) && acks("mails").Load() == 2*published && published == pub.published.Load()
	}, "messages are left")
	require.NoError(t, router.Close())
	require.NoError(t, broker.Close())
	require.NoError(t, <-ran)
	return w
}

func TestWatermillStorm(t *testing.T) {
	t.Parallel()
	ids := messages(100)
	t.Run("Once", func(t *testing.T) {
		t.Parallel()
		locker, _ := overRedis(t)
		w := runWatermillStorm(t, ids, onceEachMessage(locker))
		w.orders.requireExact(t, ids)
		var mails, of []string
		w.mailOf.Range(func(mail, order any) bool {
			mails, of = append(mails, mail.(string)), append(of, order.(string))
			return true
		})
		// A handler that fails after lock.Commit is not run again, and has produced nothing.
		produce := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return w.orders.committed[id] })
		require.ElementsMatch(t, produce, of, "one mail for each order")
		w.mails.requireExact(t, mails)
	})
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		w := runWatermillStorm(t, ids)
		require.NotEmpty(t, w.orders.outcome(ids).doubled)
	})
	// The Deduplicator notes a message before it is handled, and drops the redelivery of one
	// whose handler has failed.
	t.Run("Deduplicator", func(t *testing.T) {
		t.Parallel()
		seen, err := middleware.NewMapExpiringKeyRepository(time.Hour)
		require.NoError(t, err)
		byUUID := func(m *message.Message) (string, error) { return m.UUID, nil }
		w := runWatermillStorm(t, ids, (&middleware.Deduplicator{KeyFactory: byUUID, Repository: seen, Timeout: time.Minute}).Middleware)
		o := w.orders.outcome(ids)
		require.NotEmpty(t, o.lost)
		require.Empty(t, o.doubled)
		t.Logf("watermill's Deduplicator has lost %d of %d messages", len(o.lost), len(ids))
	})
}
