package integrations_test

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/httplatch/httplatch/lock"
)

// consume handles each record once, however often it was produced or is fetched. Kafka
// has no nack: what fails is tried again here, and those behind it wait.
func consume(ctx context.Context, client *kgo.Client, once func(context.Context, *kgo.Record) error) error {
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err // the context has ended
		}
		for _, record := range fetches.Records() {
			for once(ctx, record) != nil {
				select {
				case <-pause.C:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			client.MarkCommitRecords(record) // and with kgo.AutoCommitMarks only what is done is committed
		}
	}
}

// onceEachRecord returns a function that calls work once for each message.
func onceEachRecord(locker *lock.Locker, client *kgo.Client, work func(context.Context, *kgo.Record) error) func(context.Context, *kgo.Record) error {
	return func(ctx context.Context, record *kgo.Record) error {
		id, err := messageID(record)
		if err == nil {
			_, _, err = locker.Once(ctx, lock.Key("record", id), nil, func(ctx context.Context) ([]byte, error) {
				return nil, work(ctx, record)
			})
		}
		if permanent(err) {
			dead := &kgo.Record{Topic: record.Topic + ".dead", Key: record.Key, Value: record.Value, Headers: record.Headers}
			return client.ProduceSync(ctx, dead).FirstErr()
		}
		return err
	}
}

// messageID returns the ID that the producer has given to the message.
func messageID(record *kgo.Record) (string, error) {
	for _, h := range record.Headers {
		if h.Key == "message-id" && len(h.Value) > 0 {
			return string(h.Value), nil
		}
	}
	return "", errNoID
}
