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
	s := &Store{nodes: newNodes(client), prefix: "latch:", maxLag: 2 * time.Minute, close: func() error { return nil }}
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
	// A server has as long to answer as at Open.
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

// Option is an option of [New] and [Open].
type Option interface{ apply(*Store) }

type option func(*Store)

func (o option) apply(s *Store) { o(s) }

// WithPrefix sets the beginning of the names of all entries. The default is "latch:". Stores with the
// same prefix share locks and receipts, so name the service in it:
//
//	redisstore.WithPrefix("shop:")
//
// Stores with different prefixes on one Redis do not see each other's entries. Two services with one
// prefix mistake each other's requests for repeats: for an equal user, path and key, the handler of the
// second service does not run, and its caller gets the answer of the first. A gateway and the service
// behind it also need two prefixes. In a Redis Cluster, a prefix with a hash tag ("{latch}:") puts all
// entries on one node.
func WithPrefix(prefix string) Option {
	return option(func(s *Store) { s.prefix = prefix })
}

// WithoutCheck makes [Open] return a store without contacting the server, which may be down. It is
// for the nodes of a quorum: the Check of [quorum.New] checks all nodes, and accepts a majority.
func WithoutCheck() Option {
	return option(func(s *Store) { s.unchecked = true })
}

// WithoutPluralClaims makes the store claim the keys of a set ([lock.Locker.AcquireAll]) one after the
// other, as it does on a Cluster. It is for proxies that share keys among several servers and send a
// command to the server of its first key, such as Twemproxy, Envoy's Redis proxy and Codis. Behind such
// a proxy, a script takes all keys of a set on one server, where the claims of other sets, and of single
// keys, do not find them: a key gets two holders. [Store.Check] tries to detect such a proxy. Stop
// every process without the option before you start the first one with it.
func WithoutPluralClaims() Option {
	return option(func(s *Store) { s.inOrder.Store(true) })
}
