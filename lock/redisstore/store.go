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
	nodes   *nodes
	prefix  string
	maxLag  time.Duration
	close   func() error // of the client that Open made
	notices *notices     // nil without WithNotifications

	unchecked bool // Open has not contacted the server

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
	_ lock.Store      = (*Store)(nil)
	_ lock.Inspector  = (*Store)(nil)
	_ lock.Amender    = (*Store)(nil)
	_ lock.SetClaimer = (*Store)(nil)
	_ lock.Describer  = (*Store)(nil)
)

// New returns a store over client, which it neither dials nor ever closes.
//
//	store := redisstore.New(client, redisstore.WithPrefix("shop:"))
//
// The prefix names the service: two services with one prefix get each other's answers; see [WithPrefix].
//
// New is made for a *redis.Client (also with Sentinel) and a *redis.ClusterClient.
//
// The store has connections of its own, with the client's options: see the package documentation, also for
// clients that cannot be used in this way. A program has one store for each prefix. Close ends them.
//
// New panics on a nil client, a nil Option, a *redis.Ring, which can make two holders, and a
// *redis.AutoPipeliner, which repeats commands.
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
	s := &Store{
		nodes:  newNodes(client),
		prefix: "latch:",
		maxLag: 2 * time.Minute,
		close:  func() error { return nil },
	}
	for _, o := range opts {
		if o == nil {
			panic("redisstore: nil Option")
		}
		o.apply(s)
	}
	return s
}

// Close ends the connections of the store, the listener of [WithNotifications], and the client that
// Open made. Commands that are written have a second for their replies. Later calls are not applied.
func (s *Store) Close() error {
	// The time in which a server has to answer.
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout) //nolint:forbidigo // Close gets no context
	defer cancel()
	if s.notices != nil {
		s.notices.close(ctx)
	}
	s.nodes.close(ctx)
	return s.close()
}

// Describe is part of [lock.Describer]. The kernel sends the bytes of a closed socket again until
// the network accepts them: for about two minutes, or for a quarter of a minute on Linux after
// [Open], which sets this limit.
func (s *Store) Describe() lock.Description {
	return lock.Description{MaxLag: s.maxLag, Check: s.Check, Watch: s.Watch, Servers: s.Servers}
}

// Servers returns the run ids of the masters that the store writes to: one, or several in a
// Cluster. With them, a quorum detects two stores on one server, and a store over a Cluster.
// Servers leaves out a server that does not report its run id.
func (s *Store) Servers(ctx context.Context) (ids []string, err error) {
	masters, err := s.nodes.masters(ctx)
	if err != nil {
		return nil, err
	}
	for _, master := range masters {
		info, err := infoOf(ctx, master)
		if err != nil {
			return nil, err
		}
		if id := info["run_id"]; id != "" {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
