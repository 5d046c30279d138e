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

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
)

// nodes are the ways to the servers of a client: one, or one to each master of a
// Cluster. A pipeline of go-redis' cluster client waits for the slowest node; a
// batch here has one node, and does not know the others.
type nodes struct {
	only *group // nil: a Cluster

	cluster    *redis.ClusterClient
	direct     bool
	alone      int
	routed     atomic.Bool // the client knows the masters
	redirected *group      // by the cluster client's own knowledge
	mu         sync.RWMutex
	byMaster   map[*redis.Client]*group
}

// maxNodes bounds what is kept of masters, some of which may have gone.
const maxNodes = 1024

// newNodes returns the ways to the servers of client. direct says that nothing in
// it can make a call last longer than its context.
func newNodes(client redis.UniversalClient, direct bool) *nodes {
	switch c := client.(type) {
	case *redis.Client:
		return &nodes{only: newGroup(maxBatch, connections(c), direct, pipelined(c, direct, func(error) {}))}
	case *redis.ClusterClient:
		return &nodes{
			cluster: c, direct: direct, alone: alone, byMaster: make(map[*redis.Client]*group),
			redirected: newGroup(1, maxConnections, false, oneByOne(c)),
		}
	default: // a wrapper, which may have no pipelines of the usual kind
		return &nodes{only: newGroup(1, maxConnections, false, oneByOne(client))}
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
	n.mu.RLock()
	g := n.byMaster[master]
	n.mu.RUnlock()
	if g != nil {
		return g, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if g = n.byMaster[master]; g != nil {
		return g, nil
	}
	if len(n.byMaster) >= maxNodes {
		clear(n.byMaster) // a call that is under way keeps its group
	}
	g = newGroup(maxBatch, connections(master), n.direct, pipelined(master, n.direct, n.failed))
	g.alone = min(g.alone, n.alone)
	n.byMaster[master] = g
	return g, nil
}

// failed makes the cluster client look which node has which slot if err says
// that one may have failed: a slot may have another master by now. Commands that
// must not be repeated do not make it look.
func (n *nodes) failed(err error) {
	if _, broken := errors.AsType[net.Error](err); broken || errors.Is(err, errTimeOver) {
		n.cluster.ReloadState(context.Background()) //nolint:forbidigo // it outlives its callers
	}
}

// close waits for what is out until ctx ends.
func (n *nodes) close(ctx context.Context) {
	all := []*group{n.only}
	if n.only == nil {
		n.mu.RLock()
		all = append(slices.Collect(maps.Values(n.byMaster)), n.redirected)
		n.mu.RUnlock()
	}
	for _, g := range all {
		g.close(ctx)
	}
}

// pipelined sends a batch as one pipeline of client. opened says that Open has made
// the client: it obeys contexts, and has no hooks.
func pipelined(client *redis.Client, opened bool, failed func(error)) func(b *batch) error {
	p := &pipeliner{client: client}
	if !opened {
		bind(client)
	}
	return func(b *batch) (err error) {
		if opened {
			err = b.transmit(func() error { return p.send(b, b.members) })
		} else {
			err = p.send(b, b.members)
		}
		if err != nil {
			failed(err)
		}
		return err
	}
}

// oneByOne sends the only command of a batch through a client of which no more is
// known.
func oneByOne(client redis.UniversalClient) func(b *batch) error {
	return func(b *batch) error {
		b.outer = true
		return b.transmit(func() error { return client.Process(b, b.members[0]) })
	}
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
