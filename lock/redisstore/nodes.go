package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/serverclock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// nodes sends commands to the one server of a client, or to the masters of a Cluster.
type nodes struct {
	only       *server     // nil: a Cluster
	cluster    masters     // nil: one server
	routed     atomic.Bool // the cluster client knows the masters
	redirected *server     // over the cluster client itself, which follows slots that move
	closed     atomic.Bool
}

// masters finds the servers of a Cluster. The interface keeps the types of the client out of Store: the compiler
// takes 1.5 s for each package that can reach them.
type masters interface {
	find(ctx context.Context, name string) (*server, error)
	all(ctx context.Context) ([]*server, error)
	own() bool
	close(ctx context.Context)
}

func newNodes(client redis.UniversalClient) *nodes {
	switch c := client.(type) {
	case *redis.Client:
		return &nodes{only: serverOver(c, nil)}
	case *redis.ClusterClient:
		return &nodes{cluster: &cluster{client: c, byMaster: make(map[*redis.Client]*server)}, redirected: newServer(foreign{c})}
	default: // a wrapper, whose connections may differ
		return &nodes{only: newServer(foreign{client})}
	}
}

// own reports whether the store has connections of its own.
func (n *nodes) own() bool {
	return n.only != nil && n.only.own() != nil || n.cluster != nil && n.cluster.own()
}

// do sends c to the server that has its key.
func (n *nodes) do(ctx context.Context, c *wire.Command) (any, error) {
	to, err := n.route(ctx, c.EntryName)
	if err != nil {
		return nil, err
	}
	if n.cluster != nil && to.own() == nil {
		return n.redirected.Do(ctx, c) // a node's client does not follow the slots
	}
	answer, err := to.Do(ctx, c)
	if code := failure.ClassOf(err); n.cluster != nil && (code == "MOVED" || code == "ASK") && errors.Is(err, lock.ErrNotApplied) {
		// The slot has moved while the command waited. It was not executed.
		return n.redirected.Do(ctx, c)
	}
	return answer, err
}

// route returns the server of the entry called name. A client that does not know the masters yet
// asks the Cluster for them, for as long as the client's own settings allow.
func (n *nodes) route(ctx context.Context, name string) (*server, error) {
	switch {
	case n.closed.Load():
		return nil, failure.NotApplied("closed", redis.ErrClosed)
	case n.only != nil:
		return n.only, nil
	case n.routed.Load():
		return n.cluster.find(ctx, name)
	}
	of, err := untilEnd(ctx, func() (*server, error) { return n.cluster.find(context.WithoutCancel(ctx), name) })
	n.routed.CompareAndSwap(false, err == nil)
	return of, err
}

// masters returns the server of every master of a Cluster, always in the same order. Without a
// Cluster, it returns the only server.
func (n *nodes) masters(ctx context.Context) ([]*server, error) {
	if n.only != nil {
		return []*server{n.only}, nil
	}
	return n.cluster.all(ctx)
}

// close ends the connections. A command that is under way has until the end of ctx for its reply.
func (n *nodes) close(ctx context.Context) {
	n.closed.Store(true)
	if n.only != nil {
		n.only.Close(ctx)
		return
	}
	n.cluster.close(ctx)
}

// untilEnd makes a call that sends no command on an entry, and returns when ctx ends, whatever the
// client does.
func untilEnd[T any](ctx context.Context, call func() (T, error)) (value T, err error) {
	select {
	case r := <-failure.Apart(call):
		value, err = r.Value, r.Err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil || failure.ClassOf(err) != "" {
		return value, err
	}
	return value, failure.NotSent(err)
}

// maxNodes bounds the masters in memory. Former masters stay there.
const maxNodes = 1024

// cluster is a Redis Cluster.
type cluster struct {
	client *redis.ClusterClient

	mu       sync.Mutex
	byMaster map[*redis.Client]*server
	closed   bool
}

func (c *cluster) own() bool {
	o := c.client.Options()
	return o.OnConnect == nil && o.StreamingCredentialsProvider == nil // see serverOver
}

// find returns the server of the master that has the slot of name.
func (c *cluster) find(ctx context.Context, name string) (*server, error) {
	master, err := c.client.MasterForKey(ctx, name)
	if err != nil {
		return nil, failure.NotSent(err)
	}
	return c.serverOf(master), nil
}

// serverOf returns the server of a master.
func (c *cluster) serverOf(master *redis.Client) *server {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byMaster[master]
	if s == nil {
		if len(c.byMaster) >= maxNodes {
			clear(c.byMaster) // a call that is under way keeps its server
		}
		s = serverOver(master, func() {
			// A slot may have another master by now. The client does not find out by itself.
			c.client.ReloadState(context.Background()) //nolint:forbidigo // it outlives its callers
		})
		c.byMaster[master] = s
		if c.closed { // meanwhile
			s.Close(context.Background()) //nolint:forbidigo // it has no connection yet
		}
	}
	return s
}

func (c *cluster) all(ctx context.Context) ([]*server, error) {
	found, err := untilEnd(ctx, func() (found []*redis.Client, err error) {
		var mu sync.Mutex
		err = c.client.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			found = append(found, master)
			return nil
		})
		return found, err
	})
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0: // a node that was reset, or has lost its disk, answers so
		return nil, failure.NotApplied("CLUSTERDOWN", errors.New("the node that was asked knows no master"))
	}
	slices.SortFunc(found, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	all := make([]*server, len(found))
	for i, master := range found {
		all[i] = c.serverOf(master)
	}
	return all, nil
}

func (c *cluster) close(ctx context.Context) {
	c.mu.Lock()
	c.closed = true
	all := slices.Collect(maps.Values(c.byMaster))
	c.mu.Unlock()
	for _, of := range all {
		of.Close(ctx)
	}
}

// transport sends commands to one server.
type transport interface {
	Do(ctx context.Context, c *wire.Command) (any, error)
	Close(ctx context.Context)
}

// server sends commands to one server, and notes its abilities and its clock.
type server struct {
	transport

	clock *serverclock.Offset
	can   [abilities]ability
}

func newServer(t transport) *server {
	return &server{transport: t, clock: serverclock.NewOffset(time.Now())}
}

// own returns the transport over connections of the store's own, nil if a client sends every command.
func (s *server) own() *wire.Server {
	own, _ := s.transport.(*wire.Server)
	return own
}

// serverOver returns the server of a client, over connections of the store's own. Some options are
// code of the user that works on a connection of the client: with one of these, the client itself
// sends each command.
func serverOver(client *redis.Client, broken func()) *server {
	o := client.Options()
	if o.OnConnect != nil || o.Limiter != nil || o.StreamingCredentialsProvider != nil {
		return newServer(foreign{client})
	}
	dial := func(ctx context.Context) (net.Conn, error) { return o.Dialer(ctx, o.Network, o.Addr) }
	return newServer(wire.New(wire.Config{
		Dial:    wire.DialerOf(dial, func(ctx context.Context) (wire.Login, error) { return loginOf(ctx, o) }),
		Timeout: cmp.Or(max(o.DialTimeout, 0), openTimeout),
		Reply:   cmp.Or(max(o.ReadTimeout, 0), openTimeout), Moves: o.Addr == "FailoverClient", Broken: broken,
	}))
}

// loginOf returns what a connection of a client says first.
func loginOf(ctx context.Context, o *redis.Options) (as wire.Login, err error) {
	as = wire.Login{User: o.Username, Password: o.Password, ClientName: o.ClientName, DB: o.DB}
	switch {
	case o.CredentialsProviderContext != nil:
		as.User, as.Password, err = o.CredentialsProviderContext(ctx)
	case o.CredentialsProvider != nil:
		as.User, as.Password = o.CredentialsProvider()
	}
	if err != nil {
		return as, fmt.Errorf("no credentials: %w", err)
	}
	return as, nil
}

// ask sends a read-only command. An error says that nothing was applied.
func ask(ctx context.Context, to *server, args ...any) (any, error) {
	answer, err := to.Do(ctx, wire.NewCommand("", args...))
	return answer, unchanged(err)
}

// unchanged returns the error of a command that only reads.
func unchanged(err error) error {
	if f, ok := errors.AsType[*failure.Error](err); ok {
		return failure.NotApplied(f.Class(), f.Cause())
	}
	return err
}
