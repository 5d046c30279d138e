package redisstore

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/group"
	"github.com/httplatch/httplatch/lock/redisstore/internal/serverclock"
)

// nodes sends commands to the one server of a client, or to the masters of a Cluster. A pipeline of
// go-redis' cluster client waits for the slowest node. A batch of this type goes to one node, and
// does not wait for the others.
type nodes struct {
	only *server // nil: a Cluster

	cluster    *redis.ClusterClient
	opened     bool
	routed     atomic.Bool // the client knows the masters
	redirected *server     // by the cluster client itself
	mu         sync.Mutex
	byMaster   map[*redis.Client]*server
}

// maxNodes bounds the masters in memory, some of which may have gone.
const maxNodes = 1024

// newNodes returns the nodes of client. opened says that Open has made the client.
func newNodes(client redis.UniversalClient, opened bool) *nodes {
	switch c := client.(type) {
	case *redis.Client:
		return &nodes{only: new(nodes).pipelined(c, opened)}
	case *redis.ClusterClient:
		return &nodes{cluster: c, opened: opened, byMaster: make(map[*redis.Client]*server), redirected: oneByOne(c)}
	default: // a wrapper, whose pipelines may differ
		return &nodes{only: oneByOne(client)}
	}
}

// do sends c to the server that has its key.
func (n *nodes) do(ctx context.Context, c *group.Command) (any, error) {
	to, err := n.route(ctx, c.EntryName)
	if err != nil {
		return nil, err
	}
	answer, err := to.Do(ctx, c)
	if code := failure.ClassOf(err); n.cluster != nil && (code == "MOVED" || code == "ASK") && errors.Is(err, lock.ErrNotApplied) {
		// The slot has moved while the command waited. It was not executed.
		return n.redirected.Do(ctx, c.Again())
	}
	return answer, err
}

// route returns the server of the entry called name. A client that does not know the masters yet
// asks the Cluster for them, for as long as the client's own settings allow.
func (n *nodes) route(ctx context.Context, name string) (*server, error) {
	switch {
	case n.only != nil:
		return n.only, nil
	case n.routed.Load():
		return n.find(ctx, name)
	}
	of, err := untilDone(ctx, func() (*server, error) { return n.find(context.WithoutCancel(ctx), name) })
	n.routed.CompareAndSwap(false, err == nil)
	return of, err
}

// find returns the server of the master that has the slot of name.
func (n *nodes) find(ctx context.Context, name string) (*server, error) {
	master, err := n.cluster.MasterForKey(ctx, name)
	if err != nil {
		return nil, failure.NotSent(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	of := n.byMaster[master]
	if of == nil {
		if len(n.byMaster) >= maxNodes {
			clear(n.byMaster) // a call that is under way keeps its server
		}
		of = n.pipelined(master, n.opened)
		n.byMaster[master] = of
	}
	return of, nil
}

// close waits until no batch is in flight, or ctx ends.
func (n *nodes) close(ctx context.Context) {
	group.Drain(ctx, func() []*group.Group {
		if n.only != nil {
			return []*group.Group{n.only.Group}
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		all := []*group.Group{n.redirected.Group}
		for _, of := range n.byMaster {
			all = append(all, of.Group)
		}
		return all
	})
}

// server sends commands to one server, and notes its abilities and its clock.
type server struct {
	*group.Group

	clock *serverclock.Offset
	can   [abilities]ability
}

func newServer(c group.Config) *server {
	return &server{Group: group.New(c), clock: serverclock.NewOffset(time.Now())}
}

// pipelined returns a server whose batches are pipelines of client. A client that Open has
// made obeys contexts, and has no hooks.
func (n *nodes) pipelined(client *redis.Client, opened bool) *server {
	p, direct := &pipeliner{client: client}, new(atomic.Bool)
	if direct.Store(opened); !opened {
		direct = &bind(client).bare
	}
	send := func(b *group.Batch) error {
		err := p.send(b, b.Commands())
		if _, broken := errors.AsType[net.Error](err); n.cluster != nil && (broken || errors.Is(err, group.ErrTimeOver)) {
			// A slot may have another master by now. For commands that must not be repeated,
			// the client does not find out by itself.
			n.cluster.ReloadState(context.Background()) //nolint:forbidigo // it outlives its callers
		}
		return err
	}
	return newServer(group.Config{
		Share: maxBatch, Batches: connections(client), Queue: maxQueued,
		Send: send, Outer: opened, Direct: direct,
	})
}

// oneByOne returns a server for a client of an unknown type. It sends each command in its own
// round trip.
func oneByOne(client redis.UniversalClient) *server {
	return newServer(group.Config{
		Share: 1, Batches: maxConnections, Queue: maxQueued,
		Send:  func(b *group.Batch) error { return client.Process(b, b.Commands()[0]) },
		Outer: true, Direct: new(atomic.Bool),
	})
}

const (
	// maxConnections bounds the batches in flight at once, as the client's pool also does.
	maxConnections = 32

	// maxBatch is the largest number of commands that share a round trip, and its failure.
	maxBatch = 32

	// maxQueued bounds the callers that wait for their round trip to begin.
	maxQueued = 1 << 16
)

// connections returns how many batches can have a connection each.
func connections(c *redis.Client) int {
	o := c.Options()
	pool := cmp.Or(o.PipelinePoolSize, redis.DefaultPipelinePoolSize)
	if pool < 0 {
		pool = o.PoolSize
	}
	return min(pool, maxConnections)
}
