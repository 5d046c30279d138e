package integrations_test

import (
	"context"
	"encoding/json"
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

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
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
// same time. The handlers of "orders" produce an e-mail for each order, and the handlers of
// "mails" send it.
type watermillStorm struct {
	orders, mails *storm
	mailOf        sync.Map // of UUIDs of mails: the order
}

func startRouter(t *testing.T, config gochannel.Config, set func(*message.Router, *gochannel.GoChannel)) (broker *gochannel.GoChannel, stop func()) {
	t.Helper()
	broker = gochannel.NewGoChannel(config, watermill.NopLogger{})
	router := must.Get(message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, watermill.NopLogger{}))(t)
	set(router, broker)
	ran := make(chan error, 1)
	go func() { ran <- router.Run(context.WithoutCancel(t.Context())) }()
	<-router.Running()
	return broker, func() {
		require.NoError(t, router.Close())
		require.NoError(t, broker.Close())
		require.NoError(t, <-ran)
	}
}

func runWatermillStorm(t *testing.T, ids []string, guards ...message.HandlerMiddleware) *watermillStorm {
	t.Helper()
	w := &watermillStorm{orders: newStorm(t), mails: newStorm(t)}
	pub := &unreliable{storm: newStorm(t)}
	var orderAcks, mailAcks atomic.Int64
	broker, stop := startRouter(t, gochannel.Config{OutputChannelBuffer: 16}, func(router *message.Router, broker *gochannel.GoChannel) {
		pub.Publisher = broker
		count := func(acks *atomic.Int64) message.Subscriber {
			sub := must.Get(message.MessageTransformSubscriberDecorator(func(msg *message.Message) {
				go func() {
					select {
					case <-msg.Acked():
						acks.Add(1)
					case <-msg.Nacked():
					case <-t.Context().Done():
					}
				}()
			})(broker))(t)
			return sub
		}
		router.AddMiddleware(guards...)
		for _, worker := range []string{"a", "b"} {
			router.AddHandler("orders "+worker, "orders", count(&orderAcks), "mails", pub, func(msg *message.Message) ([]*message.Message, error) {
				if err := w.orders.work(msg.Context(), msg.UUID); err != nil {
					return nil, err
				}
				mail := message.NewMessage(watermill.NewUUID(), []byte("thank you for "+msg.UUID))
				mail.Metadata.Set("order", msg.UUID)
				return []*message.Message{mail}, nil
			})
			router.AddConsumerHandler("mails "+worker, "mails", count(&mailAcks), func(msg *message.Message) error {
				w.mailOf.Store(msg.UUID, msg.Metadata.Get("order"))
				return w.mails.work(msg.Context(), msg.UUID)
			})
		}
	})
	for _, id := range w.orders.twice(ids) {
		require.NoError(t, broker.Publish("orders", message.NewMessage(id, []byte("tea"))))
	}
	eventually(t, func() bool {
		published := pub.published.Load()
		return orderAcks.Load() == int64(4*len(ids)) && mailAcks.Load() == 2*published && published == pub.published.Load()
	}, "messages are left")
	stop()
	return w
}

func TestWatermillStorm(t *testing.T) {
	t.Parallel()
	ids := messages(100)
	parallel.Run(t, "Once", func(t *testing.T) {
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
	parallel.Run(t, "nothing", func(t *testing.T) {
		w := runWatermillStorm(t, ids)
		require.NotEmpty(t, w.orders.outcome(ids).doubled)
	})
	// The Deduplicator notes a message before it is handled, and drops the redelivery of one
	// whose handler has failed.
	parallel.Run(t, "Deduplicator", func(t *testing.T) {
		seen := must.Get(middleware.NewMapExpiringKeyRepository(time.Hour))(t)
		byUUID := func(m *message.Message) (string, error) { return m.UUID, nil }
		w := runWatermillStorm(t, ids, (&middleware.Deduplicator{KeyFactory: byUUID, Repository: seen, Timeout: time.Minute}).Middleware)
		o := w.orders.outcome(ids)
		require.NotEmpty(t, o.lost)
		require.Empty(t, o.doubled)
		t.Logf("watermill's Deduplicator has lost %d of %d messages", len(o.lost), len(ids))
	})
}

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
	var handled []string
	h := (&middleware.Deduplicator{}).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		handled = append(handled, msg.UUID)
		return nil, nil
	})
	for _, m := range orders {
		must.Get(h(m))(t)
	}
	require.Equal(t, []string{"a", "c"}, handled)
}
