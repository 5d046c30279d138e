package redisstore

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/group"
)

// pipeliner sends pipelines, and keeps them for later use: a new one takes five allocations.
type pipeliner struct {
	client *redis.Client
	made   sync.Pool
}

func (p *pipeliner) send(ctx context.Context, cmds []redis.Cmder) error {
	pipe, ok := p.made.Get().(redis.Pipeliner)
	if !ok {
		pipe = p.client.Pipeline()
	}
	_ = pipe.BatchProcess(ctx, cmds...)
	_, err := pipe.Exec(ctx) // a panic keeps pipe from being used again
	p.made.Put(pipe)
	return err
}

// bind makes the store's commands end with their contexts. While go-redis writes and reads, it
// obeys contexts only if ContextTimeoutEnabled is set and the timeouts are not negative. Without
// the option, a call without an answer keeps its connection for ReadTimeout. So a server that is
// silent for two seconds would use up the pool of the client, and calls would still fail for a
// while after the server answers again.
//
// The options of a client cannot be changed. So bind adds a hook as the last of the client's
// chain. The hook hands the store's commands, and no other commands, to a clone that has the
// option and the same pools. Hooks that were added earlier still see these commands. One link
// serves all stores over a client. The client's own commands pass through every link.
func bind(c *redis.Client) *link {
	at := weak.Make(c)
	stored, known := bound.LoadOrStore(at, new(link))
	if !known {
		runtime.AddCleanup(c, func(at weak.Pointer[redis.Client]) { bound.Delete(at) }, at)
	}
	l := stored.(*link) //nolint:errcheck,forcetypeassert // nothing else is stored
	l.added.Do(func() {
		l.clone.client = cloneWithDeadlines(c)
		c.AddHook(l)
	})
	return l
}

// bound has a *link for each client under a store, until the client is collected. It is global
// because the stores over one client, which do not know each other, share one link: a hook cannot
// be removed from a client, and each further one costs every command.
var bound sync.Map // by weak.Pointer[redis.Client]

// link is the last hook of a client. It takes the store's commands out of the chain.
type link struct {
	added    sync.Once
	clone    pipeliner
	examined sync.Once
	bare     atomic.Bool // the client runs none of its user's code for a command
}

// examineClient sets bare. go-redis does not list the hooks of a client. So examineClient runs
// within a command, and examines its own call stack: if there is no hook before l, the caller of l
// is go-redis itself. Hooks after l do not see the command.
func (l *link) examineClient() {
	var stack [16]uintptr
	frames := runtime.CallersFrames(stack[:runtime.Callers(1, stack[:])])
	at, more := frames.Next()
	for more && (strings.HasPrefix(at.Function, "sync.") || strings.Contains(at.Function, "redisstore.(*link).")) {
		at, more = frames.Next()
	}
	o := l.clone.client.Options()
	l.bare.Store(strings.HasPrefix(at.Function, goRedis) && o.Limiter == nil && o.OnConnect == nil &&
		o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil)
}

const goRedis = "github.com/redis/go-redis/v9."

// cloneWithDeadlines returns a client over the pools of c, without the hooks of c. Its commands end
// with their contexts.
func cloneWithDeadlines(c *redis.Client) *redis.Client {
	o := c.Options()
	clone := c.WithTimeout(max(o.ReadTimeout, 0))
	own := clone.Options() // only the clone has these options, and the clone was not used yet
	own.WriteTimeout = max(o.WriteTimeout, 0)
	own.ContextTimeoutEnabled = true
	return clone
}

// DialHook changes nothing.
func (*link) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook sends the store's pipelines through the clone, and not through next.
func (l *link) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		switch c := cmds[0].(type) {
		case *group.Command:
			l.examined.Do(l.examineClient)
			return c.Transmit(func() error { return l.clone.send(ctx, cmds) })
		case query:
			err := l.clone.send(ctx, cmds)
			if failure.IsReply(err) && slices.ContainsFunc(cmds, failedOne) {
				return nil // a cluster client would apply the error of one command to all
			}
			return err
		default:
			return next(ctx, cmds)
		}
	}
}

func failedOne(cmd redis.Cmder) bool { return cmd.Err() != nil }

// ProcessHook sends the store's commands through the clone, and not through next.
func (l *link) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch c := cmd.(type) {
		case *group.Command:
			if c.Outer() {
				return l.clone.client.Process(ctx, c)
			}
			// A hook has taken a pipeline apart.
			return c.Transmit(func() error { return l.clone.client.Process(ctx, c) })
		case query:
			return l.clone.client.Process(ctx, c)
		default:
			return next(ctx, cmd)
		}
	}
}
