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
		c.AddHook(detour{process: d.process})
	}
}

func bindNode(c *redis.Client) {
	clone := obeying(c)
	pipeline := func(ctx context.Context, cmds ...redis.Cmder) error {
		pipe := clone.Pipeline()
		_ = pipe.BatchProcess(ctx, cmds...)
		_, err := pipe.Exec(ctx)
		return err
	}
	c.AddHook(detour{
		process: func(ctx context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
			one, ok := cmd.(*command)
			if !ok {
				return clone.Process(ctx, cmd)
			}
			// A pipeline of one: go-redis looks into what a single command has failed
			// with, and the server's nil is that to it, for longer than all else takes.
			one.piped = true
			return pipeline(ctx, cmd)
		},
		pipeline: func(ctx context.Context, cmds []redis.Cmder) error { return pipeline(ctx, cmds...) },
	})
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
	process  func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
	pipeline redis.ProcessPipelineHook // nil: they are not led past anything
}

// DialHook changes nothing.
func (detour) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook leads the store's batches past next.
func (d detour) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if _, ours := cmds[0].(*command); ours && d.pipeline != nil {
			return d.pipeline(ctx, cmds)
		}
		return next(ctx, cmds)
	}
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
	reloadAfter(context.WithoutCancel(ctx), d.client, err)
	return err
}

// reloadAfter makes client look which node has which slot if err says that one
// may have failed: a slot may have another master by now. Commands that must not
// be repeated do not make it look.
func reloadAfter(ctx context.Context, client *redis.ClusterClient, err error) {
	if _, broken := errors.AsType[net.Error](err); broken {
		client.ReloadState(ctx)
	}
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
