package redisstore

import (
	"context"
	"errors"
	"strings"

	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// largeReceipt is the size from which a receipt is not passed to a script. Lua hashes every
// byte of its strings, and the server serves no other caller meanwhile: 1 MiB costs 3.4 ms in
// settle.lua, 1.4 ms in a script that only returns, and 0.02 ms in a SET. Below this size the
// script costs less than the second round trip of a transaction.
const largeReceipt = 64 << 10

// settleLarge settles by a transaction of two commands: a script deletes the entry of
// the token, and a SET with NX puts the receipt in the place of a deleted entry. Like
// settle.lua it may be sent again, and land after commands that were sent later.
//
// If decided is false, nothing was changed, and the script has to settle. The script works for a user
// without the permission for transactions, when memory is full, and on a slot that moves.
func (s *Store) settleLarge(ctx context.Context, name, token string, receipt []byte, keep int64) (ok, decided bool, err error) {
	// The GET is in its own transaction, which proves that the user may run MULTI. If the
	// server refused MULTI for the second transaction, its commands would not be atomic.
	answers, err := s.transact(ctx, name, []any{"get", name})
	if err != nil || answers == nil {
		return false, false, unchanged(err)
	}
	head, _ := answers[0].(string)
	switch {
	case strings.HasPrefix(head, string(entry.AppendPrefix(nil, entry.Settled, token))):
		return true, true, nil
	case !strings.HasPrefix(head, string(entry.AppendPrefix(nil, entry.Held, token))):
		return false, false, nil // the value may come from a replica
	}
	value := entry.Receipt([]byte(head), receipt)
	makeRoom := []any{"eval", roomScript.source, int64(1), name, token}
	if s.notices != nil {
		makeRoom = append(makeRoom, "publish")
	}
	answers, err = s.transact(ctx, name,
		makeRoom, // a refused evalsha would not stop the SET
		[]any{"set", name, value, "nx", "px", keep})
	if f, is := errors.AsType[*failure.Error](err); is {
		return false, false, failure.Failed(f.Cause(), true)
	}
	switch {
	case err != nil || answers == nil:
		return false, false, err
	case answers[0] == int64(2) && answers[1] == "OK", answers[0] == int64(1):
		return true, true, nil
	case answers[0] == int64(0):
		return false, true, nil // another token's, or gone
	default:
		return false, false, failure.BadAnswer(answers)
	}
}

// transact sends commands on one entry as a transaction, and returns their answers. The answers
// are nil, without an error, if the server refuses the transaction or the client cannot send one.
func (s *Store) transact(ctx context.Context, name string, commands ...[]any) ([]any, error) {
	server, err := s.nodes.route(ctx, name)
	if err != nil {
		return nil, err
	}
	if server.own() == nil {
		return nil, nil // the script has to settle
	}
	all := &wire.Command{EntryName: name, Batch: true}
	all.Then("multi")
	for _, args := range commands {
		all.Then(args...)
	}
	answer, err := server.Do(ctx, all.Then("exec"))
	if err != nil {
		return nil, err
	}
	replies, _ := answer.([]any)
	exec := replies[len(replies)-1]
	if _, refused := exec.(error); refused {
		return nil, nil // the script has to settle
	}
	if answers, _ := exec.([]any); len(answers) == len(commands) {
		return answers, nil
	}
	return nil, failure.BadAnswer(exec)
}
