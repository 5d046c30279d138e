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
	cluster *redis.ClusterClient // the client, if it is a cluster client
	nodes   *nodes               // for commands on entries
	prefix  string
	maxLag  time.Duration
	close   func() error
	notices *notices // nil without WithNotifications

	unchecked bool // Open has not contacted the server
	opened    bool // Open has made the client

	// scripted is set when the server has refused SET with NX and GET. From then on, claims
	// are scripts, which every server understands.
	scripted atomic.Bool

	// inOrder is set by WithoutPluralClaims, and when the server has refused to claim several keys
	// at once. From then on, it claims one key after the other.
	inOrder atomic.Bool

	forbidden sync.Once // logged that the user may not run a command of a newer server

	receipts    atomic.Bool // a receipt was left, so a restart of the server must not lose it
	persistence sync.Once   // was asked for, after the first receipt
}

var (
	_ lock.Store        = (*Store)(nil)
	_ lock.Inspector    = (*Store)(nil)
	_ lock.Pager        = (*Store)(nil)
	_ lock.Watcher      = (*Store)(nil)
	_ lock.Checker      = (*Store)(nil)
	_ lock.ServerLister = (*Store)(nil)
	_ lock.Amender      = (*Store)(nil)
	_ lock.SetClaimer   = (*Store)(nil)
	_ lock.Describer    = (*Store)(nil)
)

// New returns a store over client, which it neither dials nor ever closes.
//
//	store := redisstore.New(client, redisstore.WithPrefix("shop:"))
//
// The prefix names the service: two services on one Redis with the same prefix, or
// both without a prefix, get each other's answers; see [WithPrefix].
//
// New is made for a *redis.Client (also with Sentinel) and a *redis.ClusterClient.
//
// New does not change the client's options. If ContextTimeoutEnabled is not set, the first New over
// a client adds a hook to the client, or to each node of a Cluster. The hook makes the commands
// of all stores over the client end with their contexts. Hooks that are added later do not see
// these commands, and neither do hooks of the Cluster client itself: add them to its nodes
// ([redis.ClusterClient.OnNewNode]). A hook sees the commands as pipelines. Open would also set
// DialTimeout and PoolTimeout (a second) and DialerRetries (1). Without these settings, goroutines
// and connections of ended calls stay for longer, and nothing else changes.
//
// New leaves the log of go-redis on, which is one for all clients of a process: for a server that is
// away, it has several lines on standard error for each refused request, beside the log of the
// Locker. logging.Disable of github.com/redis/go-redis/v9/logging turns it off, and [redis.SetLogger]
// sends it elsewhere.
//
// Over a client made by Open, a caller sends a command itself while few others are in flight.
// Over a client given to New, which may have hooks, a separate goroutine sends it.
//
// New panics on a nil client, a nil Option, a *redis.Ring and a *redis.AutoPipeliner. A Ring sends
// keys to another shard as soon as it takes a shard for dead, which makes a second holder even
// if every server is alive. An AutoPipeliner repeats whole batches, and sends commands after
// their contexts have ended.
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

// newStore returns a store over client. opened means that Open has made the client, without hooks.
func newStore(client redis.UniversalClient, opened bool, opts []Option) *Store {
	s := &Store{
		client: client,
		prefix: "latch:",
		maxLag: 2 * time.Minute,
		close:  func() error { return nil },
	}
	s.cluster, _ = client.(*redis.ClusterClient)
	s.opened, s.nodes = opened, newNodes(client, opened)
	for _, o := range opts {
		if o == nil {
			panic("redisstore: nil Option")
		}
		o.apply(s)
	}
	return s
}

// Close closes the client that Open made. After New it only ends the listener of
// [WithNotifications], and waits, a second at most, for shared round trips.
func (s *Store) Close() error {
	if s.notices != nil {
		s.notices.close()
	}
	err := s.close() // which ends the round trips
	// The time in which a server has to answer.
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout) //nolint:forbidigo // Close gets no context
	defer cancel()
	s.nodes.close(ctx)
	return err
}

// Describe is part of [lock.Describer]. The kernel sends the bytes of a closed socket again until
// the network accepts them: for about two minutes, or for a quarter of a minute on Linux after
// [Open], which sets this limit.
func (s *Store) Describe() lock.Description { return lock.Description{MaxLag: s.maxLag} }
