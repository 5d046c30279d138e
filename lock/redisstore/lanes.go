package redisstore

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// maxNodes bounds what is kept of nodes, some of which may have gone.
const maxNodes = 1024

// lanes are the ways to the nodes of a cluster, one to each. A pipeline of
// go-redis' cluster client waits for the slowest node; a batch here has one node,
// and does not know the others.
//
// A slot can move while a command waits. Its batch does not follow: the node
// refuses it, and it goes again, alone, and by the cluster client's knowledge.
type lanes struct {
	cluster *redis.ClusterClient
	from    int64

	mu     sync.RWMutex
	byNode map[*redis.Client]*lane
	closed bool
}

// Process sends cmd to the node that has its key.
func (ls *lanes) Process(ctx context.Context, cmd redis.Cmder) error {
	if c, ok := cmd.(*command); ok {
		if node, err := ls.cluster.MasterForKey(ctx, c.name); err == nil {
			return ls.to(node).Process(ctx, cmd)
		}
	}
	return ls.cluster.Process(ctx, cmd) // which tells what is wrong
}

func (ls *lanes) to(node *redis.Client) *lane {
	ls.mu.RLock()
	l := ls.byNode[node]
	ls.mu.RUnlock()
	if l != nil {
		return l
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l = ls.byNode[node]; l != nil {
		return l
	}
	if ls.byNode == nil || len(ls.byNode) >= maxNodes {
		ls.byNode = make(map[*redis.Client]*lane) // who is under way keeps the lane
	}
	bind(node)
	l = newLane(node, ls.cluster, ls.from, ls.failed)
	l.closed = ls.closed
	ls.byNode[node] = l
	return l
}

// failed makes the cluster client look which node has which slot if err says that
// one may have failed: a slot may have another master by now. Commands that must
// not be repeated do not make it look.
func (ls *lanes) failed(err error) {
	if _, broken := errors.AsType[net.Error](err); broken {
		ls.cluster.ReloadState(context.Background()) //nolint:forbidigo // it outlives its callers
	}
}

func (ls *lanes) close(ctx context.Context) {
	ls.mu.Lock()
	ls.closed = true
	all := slices.Collect(maps.Values(ls.byNode))
	ls.mu.Unlock()
	for _, l := range all {
		l.close(ctx)
	}
}
