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
)

const partitions = 4

// kafka is a broker in this process that speaks the protocol, with the topics "orders" and
// "orders.dead".
type kafka struct {
	brokers []string
	ends    map[int32]int64 // of the partitions of "orders": how many records they have

	mu      sync.Mutex
	members map[string]*kgo.Client
}

func newKafka(t *testing.T) *kafka {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "orders", "orders.dead"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return &kafka{brokers: cluster.ListenAddrs(), ends: map[int32]int64{}, members: map[string]*kgo.Client{}}
}

func (k *kafka) client(t *testing.T, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(k.brokers...))...)
	require.NoError(t, err)
	return client
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

// committed reports whether all records of "orders" are.
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
