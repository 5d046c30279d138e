package redisstore

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// bind makes the store's commands end with their contexts. go-redis obeys
// contexts while it reads only if ContextTimeoutEnabled is set, and without it
// each call that got no answer keeps its connection for five seconds: a server
// that answers nothing for two of them would cost the client its whole pool, and
// its users a while after the server is well again.
//
// The options of a client cannot be changed. So its hook chain, the last link of
// which this adds, hands the store's commands, and no others, to a clone over
// the same pool that has the option. Hooks that were added before still see
// them.
func bind(client redis.UniversalClient) {
	switch c := client.(type) {
	case *redis.Client:
		bindNode(c)
	case *redis.ClusterClient:
		d := &clusterDetour{client: c, bound: make(map[*redis.Client]struct{})}
		c.AddHook(detour{d.process})
	}
}

func bindNode(c *redis.Client) {
	if !c.Options().ContextTimeoutEnabled {
		c.AddHook(detour{nodeDetour(obeying(c))})
	}
}

// obeying returns a client over the pool of c that obeys contexts.
func obeying(c *redis.Client) *redis.Client {
	o := c.Options()
	clone := c.WithTimeout(o.ReadTimeout)
	own := clone.Options() // the clone's own, and nobody has used it yet
	own.WriteTimeout = o.WriteTimeout
	own.ContextTimeoutEnabled = true
	return clone
}

// detour is a hook that takes the store's commands out of a client's chain.
type detour struct {
	process func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
}

// DialHook changes nothing.
func (detour) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook changes nothing.
func (detour) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook leads the store's commands past next.
func (d detour) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd.(type) {
		case *command, query:
			return d.process(ctx, cmd, next)
		}
		return next(ctx, cmd)
	}
}

func nodeDetour(clone *redis.Client) func(context.Context, redis.Cmder, redis.ProcessHook) error {
	return func(ctx context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		return clone.Process(ctx, cmd)
	}
}

// clusterDetour makes sure that the client of the node that a command goes to
// has a detour of its own, and that a node which has failed is not turned to
// for longer than the cluster has had no other in its place.
type clusterDetour struct {
	client *redis.ClusterClient

	mu    sync.Mutex
	bound map[*redis.Client]struct{}
}

// maxNodes bounds what is kept of nodes, some of which may have gone.
const maxNodes = 1024

func (d *clusterDetour) process(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	c, ok := cmd.(*command)
	if !ok {
		return next(ctx, cmd)
	}
	if master, err := d.client.MasterForKey(ctx, c.name); err == nil {
		d.bind(master)
	}
	err := next(ctx, cmd)
	if _, broken := errors.AsType[net.Error](err); broken {
		// The slot may have another master by now. A command that must not be
		// repeated does not make the client look.
		d.client.ReloadState(context.WithoutCancel(ctx))
	}
	return err
}

func (d *clusterDetour) bind(node *redis.Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.bound[node]; known {
		return
	}
	if len(d.bound) >= maxNodes {
		clear(d.bound) // a second detour behind the first is never reached
	}
	bindNode(node)
	d.bound[node] = struct{}{}
}
