package redisstore

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
)

// Store keeps entries in Redis. It is safe for concurrent use.
type Store struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is one
	to      *nodes               // what else goes through
	prefix  string
	maxLag  time.Duration
	close   func() error
	notices *notices // nil without WithNotifications

	unchecked bool // Open has asked the server nothing
	opened    bool // Open has made the client

	// scripted is set once the server has refused SET with NX and GET. Claims
	// are scripts from then on, which every server understands.
	scripted atomic.Bool

	forbidden sync.Once // logged that the user may not run a command of a newer server
}

var (
	_ lock.Store     = (*Store)(nil)
	_ lock.Inspector = (*Store)(nil)
)

// New returns a store over client, which it neither dials nor ever closes.
//
//	store := redisstore.New(client, redisstore.WithPrefix("shop:"))
//
// The prefix names the service: two services on one Redis with the same prefix, or
// both without one, get each other's answers; see [WithPrefix].
//
// *redis.Client (of a Sentinel set-up too) and *redis.ClusterClient are what it
// is made for.
//
// The client's options are left as they are. The first New over a client adds one
// hook to it, or to each node of a Cluster, which makes the commands of all stores
// over it end with their contexts if ContextTimeoutEnabled is not set; hooks that
// are added later do not see these, nor do those of a Cluster client itself: add
// them to its nodes ([redis.ClusterClient.OnNewNode]). A hook sees the commands as
// pipelines. What else Open would set differently costs a [lock.Locker] nothing but
// goroutines and connections of calls that are over, for longer: DialTimeout and
// PoolTimeout (a second with Open), DialerRetries (1).
//
// Over the client of an Open, a caller sends a command itself while few others are
// in flight; over that of a New, which can have anything in it, a goroutine does.
//
// New panics on a nil client, on a *redis.Ring and on a *redis.AutoPipeliner. A
// Ring sends keys elsewhere as soon as it loses sight of a shard, which makes a
// second holder although every server is well. An AutoPipeliner repeats whole
// batches and holds commands back beyond their context.
func New(client redis.UniversalClient, opts ...Option) *Store {
	switch client.(type) {
	case nil:
		panic("redisstore.New: client is nil")
	case *redis.Ring:
		panic("redisstore.New: a *redis.Ring moves keys when it loses sight of a shard, which makes two holders; " +
			"use a *redis.Client, a *redis.ClusterClient, or quorum.New over one store per server")
	case *redis.AutoPipeliner:
		panic("redisstore.New: a *redis.AutoPipeliner repeats commands and sends them after their context has ended; " +
			"pass the client it was made from")
	}
	if v := reflect.ValueOf(client); v.Kind() == reflect.Pointer && v.IsNil() {
		panic(fmt.Sprintf("redisstore.New: client is a nil %T", client))
	}
	return newStore(client, false, opts)
}

// newStore returns a store over client. opened says that Open has made it, with no
// code of others in it.
func newStore(client redis.UniversalClient, opened bool, opts []Option) *Store {
	s := &Store{
		client: client,
		prefix: "latch:",
		maxLag: 2 * time.Minute,
		close:  func() error { return nil },
	}
	s.cluster, _ = client.(*redis.ClusterClient)
	s.opened, s.to = opened, newNodes(client, opened)
	for _, o := range opts {
		o.apply(s)
	}
	return s
}

// Close closes the client that Open made. After New it only ends what
// [WithNotifications] has begun, and waits, a second at most, for round trips
// that calls share.
func (s *Store) Close() error {
	if s.notices != nil {
		s.notices.close()
	}
	err := s.close() // which ends what round trips wait for
	// Not longer than for a server that does not answer.
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout) //nolint:forbidigo // Close has none
	defer cancel()
	s.to.close(ctx)
	return err
}

// Describe is part of [lock.Describer]. A closed socket's bytes are sent again by the kernel for as long as
// the network does not take them: two minutes or so, and after [Open], which
// limits that on Linux, a quarter of a minute.
func (s *Store) Describe() lock.Description { return lock.Description{MaxLag: s.maxLag} }
