package redisstore

import (
	"context"
	"errors"
	"math"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// sender is the part of a client, or of the client of one node, that commands
// go through.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// command is a Redis command that is sent at most once, not at all once its
// caller has given up, and that knows whether it was.
type command struct {
	*redis.Cmd
	name    string          // of the entry
	done    <-chan struct{} // of the caller's context
	payload payload
}

// newCommand puts data, as the command's payload, in place of args[at]. That
// must not be the name or the key, which go-redis wants to see as strings.
func newCommand(ctx context.Context, name string, args []any, at int, data []byte) *command {
	c := &command{name: name, done: ctx.Done()}
	c.payload.data = data
	args[at] = &c.payload
	c.Cmd = redis.NewCmd(ctx, args...)
	return c
}

// NoRetry makes go-redis return the first failure. Its own retries would read
// the entry that their first send has made as somebody else's.
func (c *command) NoRetry() bool { return true }

var ping = []any{"ping"}

// Args is what go-redis writes. It asks for it at the last moment, and unless
// ContextTimeoutEnabled is set, dialing and the handshake before that can take
// seconds longer than the context lasts. A claim that is written then is one
// that nobody waits for.
func (c *command) Args() []any {
	select {
	case <-c.done:
		return ping
	default:
		return c.Cmd.Args()
	}
}

// payload is an argument that go-redis encodes by a method call: that call is
// the proof that the command was written, and its absence the proof that it
// was not, whatever happened before.
type payload struct {
	data  []byte
	sends atomic.Int32
}

var errGivenUp = errors.New("caller has given up")

// MarshalBinary returns the bytes and counts.
func (p *payload) MarshalBinary() ([]byte, error) {
	if p.sends.Add(1) <= 0 {
		return nil, errGivenUp
	}
	return p.data, nil
}

// String is for client hooks that print commands.
func (p *payload) String() string { return string(p.data) }

// close returns how often the command was written. From here on it will not
// be, even if a hook of the client still has it.
func (p *payload) close() int { return int(p.sends.Swap(math.MinInt32 / 2)) }

// send sends c and blocks until go-redis is through with it. The answer is nil
// if the server's was nil.
func send(ctx context.Context, client sender, c *command) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	err := client.Process(ctx, c)
	sends := c.payload.close()
	switch {
	case sends == 0 && ctx.Err() != nil && (err == nil || kind(err) == "NOPERM"): // of the PING
		return nil, notSent(ctx.Err())
	case sends == 0 && err != nil:
		return nil, notSent(err)
	case sends == 0:
		return nil, notSent(errors.New("a hook of the client answered in place of the server"))
	case err == nil:
		return c.Val(), nil
	case errors.Is(err, redis.Nil):
		return nil, nil //nolint:nilnil // the server's nil is an answer
	default:
		_, follows := client.(*redis.ClusterClient)
		return nil, failed(err, sends > 1 && !follows)
	}
}

var _ interface {
	redis.Cmder
	NoRetry() bool
} = (*command)(nil)

// query is a command that changes nothing.
type query struct{ *redis.Cmd }

// NoRetry makes go-redis return the first failure: a caller with a deadline is
// better served by an error than by a repetition.
func (query) NoRetry() bool { return true }

// ask sends a query.
func ask(ctx context.Context, client sender, args ...any) (any, error) {
	q := query{redis.NewCmd(ctx, args...)}
	if err := client.Process(ctx, q); err != nil {
		return nil, notApplied(kind(err), err)
	}
	return q.Val(), nil
}
