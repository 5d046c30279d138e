package redisstore

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/internal/carry"
)

// sender is the part of a client, or of the client of one node, that commands
// go through.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// command is a Redis command that is sent at most once, not at all once its
// caller has given up, and that knows whether it was.
type command struct {
	redis.Cmd
	ctx     context.Context //nolint:containedctx // the caller's, which decides whether it is written
	name    string          // of the entry
	payload payload

	// So that most commands are one allocation.
	args  [maxArgs]any
	space [144]byte // for the payload: an entry without a receipt, with usual names

	// How it ended; the caller's.
	answer any
	sends  int
	left   bool // in a round trip that goes on

	piped bool // it is sent in a pipeline

	// Of one that shares a round trip.
	shared bool
	stage  atomic.Int32
	batch  *batch // the worker's
	seat   *seat  // nil when the command is settled; locked with the batch
}

// maxArgs is how many arguments the longest command has, its own name included.
const maxArgs = 9

// newCommand returns a command on the entry called name that has still to be
// given its payload and its arguments.
func newCommand(ctx context.Context, name string) *command { return &command{ctx: ctx, name: name} }

// with sets the arguments. The payload must be one of them, and neither the name
// of the command nor the key, which go-redis wants to see as strings.
func (c *command) with(args ...any) *command {
	c.Cmd = *redis.NewCmd(c.ctx, append(c.args[:0], args...)...)
	return c
}

// script makes c run a script, by its source or by its hash. The payload is the
// script's first argument, or what the script is told by if it has none.
func (c *command) script(verb string, told any, args ...any) *command {
	if c.payload.data == nil {
		c.payload.data = []byte(told.(string)) //nolint:errcheck,forcetypeassert // of type script
		return c.with(verb, &c.payload, 1, c.name)
	}
	own := append(c.args[:0], verb, told, 1, c.name, &c.payload)
	return c.with(append(own, args...)...)
}

// NoRetry makes go-redis return the first failure, of a pipeline too. Its own
// retries would read the entry that their first send has made as somebody
// else's.
func (c *command) NoRetry() bool { return true }

var ping = []any{"ping"}

// Args is what go-redis writes. It asks for it at the last moment, and unless
// ContextTimeoutEnabled is set, dialing and the handshake before that can take
// seconds longer than the context lasts. A claim that is written then is one
// that nobody waits for.
func (c *command) Args() []any {
	if c.shared && !c.hand() || !c.shared && unwanted(c.ctx) != nil {
		return ping
	}
	return c.Cmd.Args()
}

// unwanted says why nobody waits for what is sent with ctx, nil if somebody does.
func unwanted(ctx context.Context) error {
	if try, ok := ctx.(*carry.Try); ok {
		return try.Unwanted()
	}
	return ctx.Err()
}

// size is about how many bytes are written.
func (c *command) size() int {
	n := len(c.payload.data)
	for _, arg := range c.Cmd.Args() {
		switch arg := arg.(type) {
		case string:
			n += len(arg)
		case []byte:
			n += len(arg)
		}
	}
	return n
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

// send sends c and blocks until go-redis is through with it, or, if it shares a
// round trip, until ctx ends. The answer is nil if the server's was nil.
func send(ctx context.Context, to sender, c *command) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	err := to.Process(ctx, c)
	if c.left {
		return nil, &carry.LeftError{Err: unknown("timeout", err)}
	}
	if !c.shared {
		c.answer, c.sends = c.Val(), c.payload.close()
	}
	gone := error(nil)
	if c.sends == 0 {
		gone = unwanted(ctx)
	}
	switch {
	case gone != nil && (err == nil || kind(err) == "NOPERM"): // of the PING
		return nil, notSent(gone)
	case c.sends == 0 && err != nil:
		return nil, notSent(err)
	case c.sends == 0:
		return nil, notSent(errors.New("a hook of the client answered in place of the server"))
	case err == nil:
		return c.answer, nil
	case err == redis.Nil, errors.Is(err, redis.Nil): //nolint:errorlint // the first is what it almost always is
		return nil, nil //nolint:nilnil // the server's nil is an answer
	}
	switch to := to.(type) {
	case *redis.ClusterClient:
		return nil, failed(err, false)
	case *lanes:
		if !c.shared {
			return nil, failed(err, false)
		}
		if code := replyCode(err); c.sends == 1 && (code == "MOVED" || code == "ASK") {
			return send(ctx, to.cluster, c.again(ctx))
		}
	}
	return nil, failed(err, c.sends > 1)
}

// again is a command like c, which was refused.
func (c *command) again(ctx context.Context) *command {
	d := newCommand(ctx, c.name)
	d.payload.data = c.payload.data
	args := slices.Clone(c.Cmd.Args())
	args[slices.Index(args, any(&c.payload))] = &d.payload
	return d.with(args...)
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
