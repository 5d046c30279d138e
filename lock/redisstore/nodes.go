package redisstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
)

// nodes are the ways to the servers of a client: one, or one to each master of a
// Cluster. A pipeline of go-redis' cluster client waits for the slowest node; a
// batch here has one node, and does not know the others.
type nodes struct {
	only *group // nil: a Cluster

	cluster    *redis.ClusterClient
	opened     bool
	alone      int
	routed     atomic.Bool // the client knows the masters
	redirected *group      // by the cluster client's own knowledge
	mu         sync.Mutex
	byMaster   map[*redis.Client]*group
}

// maxNodes bounds what is kept of masters, some of which may have gone.
const maxNodes = 1024

// newNodes returns the ways to the servers of client. opened says that Open has made
// it.
func newNodes(client redis.UniversalClient, opened bool) *nodes {
	switch c := client.(type) {
	case *redis.Client:
		return &nodes{only: new(nodes).pipelined(c, opened)}
	case *redis.ClusterClient:
		return &nodes{cluster: c, opened: opened, alone: alone, byMaster: make(map[*redis.Client]*group), redirected: oneByOne(c)}
	default: // a wrapper, which may have no pipelines of the usual kind
		return &nodes{only: oneByOne(client)}
	}
}

// do sends c to the server that has its key.
func (n *nodes) do(ctx context.Context, c *command) (any, error) {
	g, err := n.route(ctx, c.name)
	if err != nil {
		return nil, err
	}
	answer, err := g.do(ctx, c)
	if code := classOf(err); n.cluster != nil && (code == "MOVED" || code == "ASK") && errors.Is(err, lock.ErrNotApplied) {
		// The slot has moved while the command waited. It was not executed.
		return n.redirected.do(ctx, c.again())
	}
	return answer, err
}

// route finds the way to the entry called name. Until the client knows the masters
// it asks for them, and for as long as it likes.
func (n *nodes) route(ctx context.Context, name string) (*group, error) {
	switch {
	case n.only != nil:
		return n.only, nil
	case n.routed.Load():
		return n.find(ctx, name)
	}
	g, err := apart(ctx, func() (*group, error) { return n.find(context.WithoutCancel(ctx), name) })
	n.routed.CompareAndSwap(false, err == nil)
	return g, err
}

func (n *nodes) find(ctx context.Context, name string) (*group, error) {
	master, err := n.cluster.MasterForKey(ctx, name)
	if err != nil {
		return nil, notSent(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.byMaster[master]
	if g == nil {
		if len(n.byMaster) >= maxNodes {
			clear(n.byMaster) // a call that is under way keeps its group
		}
		g = n.pipelined(master, n.opened)
		g.alone = min(g.alone, n.alone)
		n.byMaster[master] = g
	}
	return g, nil
}

// close waits until nothing is out, or ctx ends.
func (n *nodes) close(ctx context.Context) {
	look := time.NewTicker(tick)
	defer look.Stop()
	for slices.ContainsFunc(n.all(), (*group).busy) {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

func (n *nodes) all() []*group {
	if n.only != nil {
		return []*group{n.only}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return append(slices.Collect(maps.Values(n.byMaster)), n.redirected)
}

// pipelined returns a group whose batches are pipelines of client. One that Open has
// made obeys contexts, and has no hooks.
func (n *nodes) pipelined(client *redis.Client, opened bool) *group {
	p, direct := &pipeliner{client: client}, new(atomic.Bool)
	if direct.Store(opened); !opened {
		direct = &bind(client).bare
	}
	return newGroup(maxBatch, connections(client), opened, direct, func(b *batch) error {
		err := p.send(b, b.members)
		if _, broken := errors.AsType[net.Error](err); n.cluster != nil && (broken || errors.Is(err, errTimeOver)) {
			// A slot may have another master by now. Commands that must not be repeated
			// do not make the client look.
			n.cluster.ReloadState(context.Background()) //nolint:forbidigo // it outlives its callers
		}
		return err
	})
}

// oneByOne returns a group that sends each command by itself, through a client of
// which no more is known.
func oneByOne(client redis.UniversalClient) *group {
	return newGroup(1, maxConnections, true, new(atomic.Bool), func(b *batch) error { return client.Process(b, b.members[0]) })
}

// maxConnections bounds the batches that are out at once; so does the client's
// pool.
const maxConnections = 32

// connections is how many batches have a connection to themselves.
func connections(c *redis.Client) int {
	o := c.Options()
	pool := cmp.Or(o.PipelinePoolSize, redis.DefaultPipelinePoolSize)
	if pool < 0 {
		pool = o.PoolSize
	}
	return min(pool, maxConnections)
}
