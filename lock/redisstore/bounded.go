package redisstore

import (
	"context"
	"runtime"
	"sync"
	"weak"

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
// them. One such link serves all stores: there may be many over one client, and
// its own commands pass through every link.
func bind(c *redis.Client) {
	at := weak.Make(c)
	first, known := bound.Load(at)
	if !known {
		first, known = bound.LoadOrStore(at, new(sync.Once))
	}
	if !known {
		runtime.AddCleanup(c, func(at weak.Pointer[redis.Client]) { bound.Delete(at) }, at)
	}
	first.(*sync.Once).Do(func() { addDetour(c) }) //nolint:errcheck,forcetypeassert // nothing else is stored
}

// bound has a *sync.Once for each client that stores were made over, and which
// is still there.
var bound sync.Map // by weak.Pointer[redis.Client]

func addDetour(c *redis.Client) {
	clone := obeying(c)
	pipeline := func(ctx context.Context, cmds ...redis.Cmder) error {
		pipe := clone.Pipeline()
		_ = pipe.BatchProcess(ctx, cmds...)
		_, err := pipe.Exec(ctx)
		return err
	}
	c.AddHook(detour{
		process: func(ctx context.Context, cmd redis.Cmder) error {
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
	process  redis.ProcessHook
	pipeline redis.ProcessPipelineHook
}

// DialHook changes nothing.
func (detour) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook leads the store's pipelines past next.
func (d detour) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if isOurs(cmds[0]) {
			return d.pipeline(ctx, cmds)
		}
		return next(ctx, cmds)
	}
}

// ProcessHook leads the store's commands past next.
func (d detour) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if isOurs(cmd) {
			return d.process(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

// isOurs reports whether a store has made cmd.
func isOurs(cmd redis.Cmder) bool {
	switch cmd.(type) {
	case *command, query:
		return true
	}
	return false
}
