package integrations_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
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

const partitions = 4

// kafka is a broker in this process that speaks the protocol, with the topics "orders" and "orders.dead".
type kafka struct {
	brokers []string
	ends    map[int32]int64 // of the partitions of "orders": how many records they have

	mu      sync.Mutex
	members map[string]*kgo.Client
}

func newKafka(t *testing.T) *kafka {
	t.Helper()
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "orders", "orders.dead")))(t)
	t.Cleanup(cluster.Close)
	return &kafka{brokers: cluster.ListenAddrs(), ends: map[int32]int64{}, members: map[string]*kgo.Client{}}
}

func (k *kafka) client(t *testing.T, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	return must.Get(kgo.NewClient(append(options, kgo.SeedBrokers(k.brokers...))...))(t)
}

// send produces a message, as its producer may do twice: to any partition.
func (k *kafka) send(t *testing.T, producer *kgo.Client, id string, partition int32) {
	t.Helper()
	record := &kgo.Record{
		Topic: "orders", Partition: partition, Value: []byte("tea"),
		Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}},
	}
	require.NoError(t, producer.ProduceSync(t.Context(), record).FirstErr())
	k.ends[partition] = record.Offset + 1
}

type recordFunc = func(context.Context, *kgo.Record) error

// member consumes until ctx ends. When its handler panics, its process has died: what it has
// not committed by then is fetched again by others, and by the one that takes its place.
func (k *kafka) member(ctx context.Context, t *testing.T, name string, guard func(*kgo.Client) recordFunc) {
	t.Helper()
	for ctx.Err() == nil {
		client, err := kgo.NewClient(
			kgo.SeedBrokers(k.brokers...), kgo.ConsumerGroup("shop"), kgo.ConsumeTopics("orders"), kgo.AutoCommitMarks(),
			kgo.AutoCommitInterval(100*time.Millisecond), kgo.HeartbeatInterval(100*time.Millisecond),
			kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) {}), // no last commit
		)
		if !assert.NoError(t, err) {
			return
		}
		k.mu.Lock()
		k.members[name] = client
		k.mu.Unlock()
		func() {
			defer func() { _ = recover() }()
			_ = consume(ctx, client, guard(client))
		}()
		client.Close()
	}
}

func (k *kafka) committed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	open := 0
	for partition, end := range k.ends {
		done := false
		for _, client := range k.members {
			done = done || client.CommittedOffsets()["orders"][partition].Offset >= end
		}
		if !done {
			open++
		}
	}
	return open == 0
}

func TestKafkaStorm(t *testing.T) {
	t.Parallel()
	for name, guarded := range map[string]bool{"Once": true, "nothing": false} {
		parallel.Run(t, name, func(t *testing.T) {
			locker, _ := overRedis(t)
			k, s, ids := newKafka(t), newStorm(t), messages(40)
			producer := k.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			for i, id := range ids {
				for twin := range 2 {
					k.send(t, producer, id, int32((i+2*twin)%partitions))
				}
			}
			producer.Close()
			work := func(ctx context.Context, record *kgo.Record) error {
				id, err := messageID(record)
				if err != nil {
					return err
				}
				return s.work(ctx, id)
			}
			ctx, end := context.WithCancel(t.Context())
			var members sync.WaitGroup
			for _, name := range []string{"a", "b"} {
				members.Go(func() {
					k.member(ctx, t, name, func(client *kgo.Client) recordFunc {
						once := work
						if guarded {
							once = onceEachRecord(locker, client, work)
						}
						return func(ctx context.Context, record *kgo.Record) error {
							err := once(ctx, record)
							if id, _ := messageID(record); err == nil && strings.HasSuffix(id, "0") && s.loses(id) {
								panic("the process dies before it has committed")
							}
							return err
						}
					})
				})
			}
			if !guarded {
				eventually(t, func() bool { return len(s.outcome(ids).doubled) > 0 }, "no effect is doubled")
			} else {
				eventually(t, k.committed, "records are left")
				s.requireExact(t, ids)
			}
			end()
			members.Wait()
		})
	}
}
