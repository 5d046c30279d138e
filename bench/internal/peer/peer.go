// Package peer has the lock libraries that are compared, each behind the same
// small interface and given the same means: one Redis, go-redis with a pool of
// the same size and without retries, a lease of [Lease], one try a call. If
// one of them has no setting for a part of that, its file says so.
package peer

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"
)

// Lease is the lease of every lock, unless the [Target] sets another. Go-zero adds half a second.
const Lease = 30 * time.Second

// Names of contenders. Ours is the library that this repository is about, and
// has all that its peers have: their client, and three seconds for a call, since
// theirs have a second for each command. Defaults is the same library as it is
// without any settings.
const (
	Ours          = "httplatch"
	Defaults      = "httplatch, defaults"
	Redislock     = "bsm/redislock"
	AutoPipelined = "bsm/redislock, AutoPipeline"
	Redsync       = "go-redsync/redsync"
	Rueidislock   = "redis/rueidislock"
	GoZero        = "zeromicro/go-zero"
)

// ErrRefused is the error of [Locker.Acquire] if another caller has the key.
var ErrRefused = errors.New("peer: the key is held")

// Peer is one library.
type Peer struct {
	Name string
	Open func(ctx context.Context, t Target) (Locker, error)
}

// Target is the server, and the settings, for every library.
type Target struct {
	Addr  string        // of the Redis server
	Pool  int           // connections at most
	Lease time.Duration // 0: Lease

	// Dial replaces the network's, of all but go-zero, which has no place for it.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

func (t Target) lease() time.Duration { return cmp.Or(t.Lease, Lease) }

// Locker is a library at work. It is safe for concurrent use.
type Locker interface {
	// Acquire takes key in one try. If another caller has it, the error is ErrRefused.
	Acquire(ctx context.Context, key string) (Held, error)
	Close(ctx context.Context) error
}

// Held is a key that was taken.
type Held interface {
	Release(ctx context.Context) error
}

// ContextOf is the context of work under held: what held says ends it, or ctx.
func ContextOf(ctx context.Context, held Held) context.Context {
	if h, ok := held.(interface{ Context() context.Context }); ok {
		return h.Context()
	}
	return ctx
}

// All are the contenders: this library, its peers, and what a cycle costs at
// least.
func All() []Peer {
	return []Peer{
		{Ours, openLatch},
		{Defaults, openDefaults},
		{Redislock, openRedislock},
		{AutoPipelined, openAutoPipelined},
		{Redsync, openRedsync},
		{Rueidislock, openRueidislock},
		{GoZero, openGoZero},
		{Bare, openBare},
		{BareRueidis, openBareRueidis},
	}
}

// Named returns the contender of that name.
func Named(name string) (Peer, bool) {
	for _, p := range All() {
		if p.Name == name {
			return p, true
		}
	}
	return Peer{}, false
}

// Cycle takes key and gives it back.
func Cycle(ctx context.Context, l Locker, key string) error {
	held, err := l.Acquire(ctx, key)
	if err != nil {
		return err
	}
	return held.Release(ctx)
}
