package redisstore

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// largeReceipt is the size from which on a receipt is no argument of a script. Lua
// hashes every byte of each text that it is given or makes, and the server serves no
// other caller meanwhile: 1 MiB costs 3.4 ms in settle.lua, 1.4 ms in a script that
// only returns, and 0.02 ms in a SET. Below this size it costs less than the round
// trip more that a transaction takes here.
const largeReceipt = 64 << 10

// errByScript: nothing was changed, and the script has to settle. It can do so for a
// user without transactions, when memory is full, and on a slot that moves.
var errByScript = errors.New("redisstore: the transaction was refused")

// settleLarge settles by a transaction of two commands: a script deletes the entry of
// the token, and a SET with NX puts the receipt in its place, if it was deleted. Like
// settle.lua it may be sent again, and land after what was sent later.
func (s *Store) settleLarge(ctx context.Context, name, token string, receipt []byte, keep int64) (ok bool, err error) {
	// That this is a transaction too proves that the user has them. The second one
	// would not be atomic if only its MULTI was refused.
	answers, err := s.transact(ctx, name, []any{"get", name})
	if err != nil {
		return false, err
	}
	head, _ := answers[0].(string)
	switch {
	case strings.HasPrefix(head, string(entry.AppendPrefix(nil, entry.Settled, token))):
		return true, nil
	case !strings.HasPrefix(head, string(entry.AppendPrefix(nil, entry.Held, token))):
		return false, errByScript // what was read may be a replica's
	}
	value := entry.Receipt([]byte(head), receipt)
	answers, err = s.transact(ctx, name,
		append([]any{"eval", roomScript.source, 1, name, token}, s.published()...), // evalsha could be refused, and SET not
		[]any{"set", name, value, "nx", "px", keep})
	if f, is := errors.AsType[*failure.Error](err); is {
		return false, failure.Failed(f.Cause(), true)
	}
	switch {
	case err != nil:
		return false, err
	case answers[0] == int64(2) && answers[1] == "OK", answers[0] == int64(1):
		return true, nil
	case answers[0] == int64(0):
		return false, nil
	default:
		return false, failure.BadAnswer(answers)
	}
}

// transact sends commands on one entry as a transaction, and returns their answers,
// or errByScript if the server has refused it, or the client has none.
func (s *Store) transact(ctx context.Context, name string, commands ...[]any) ([]any, error) {
	return apart(ctx, func() ([]any, error) {
		server, ok := s.client.(*redis.Client)
		if s.cluster != nil {
			var err error
			if server, err = s.cluster.MasterForKey(ctx, name); err != nil {
				return nil, failure.NotApplied(failure.Kind(err), err)
			}
			if !s.opened { // it obeys contexts already
				bind(server)
			}
		} else if !ok {
			return nil, errByScript
		}
		pipe := server.Pipeline()
		send := func(args ...any) query {
			q := query{redis.NewCmd(ctx, args...)}
			_ = pipe.Process(ctx, q)
			return q
		}
		send("multi")
		for _, args := range commands {
			send(args...)
		}
		exec := send("exec")
		_, _ = pipe.Exec(ctx) // of its errors, that of EXEC counts
		if reply := redis.Error(nil); errors.As(exec.Err(), &reply) {
			return nil, errByScript
		}
		answers, err := exec.Slice()
		switch {
		case err != nil:
			return nil, failure.NotApplied(failure.Kind(err), err)
		case len(answers) != len(commands):
			return nil, failure.BadAnswer(answers)
		}
		return answers, nil
	})
}
