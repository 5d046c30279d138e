package redisstore

import (
	"context"
	"math"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// Renew prolongs the lease of c.Token, and its linger if c.Linger is longer than
// the linger of the entry. It works when the server is out of memory.
func (s *Store) Renew(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	at := s.refOf(key)
	if ok, err = s.renewOwn(ctx, at, c); ok || err != nil {
		return ok, err
	}
	cmd, ok := s.scriptOn(at, c.Token)
	if !ok {
		return false, nil
	}
	cmd.Load = append(cmd.Room(), c.Token...)
	return boolReply(s.eval(ctx, renewScript, cmd, max(entry.Milliseconds(c.Lease), 1), entry.Milliseconds(c.Linger)))
}

// Settle leaves a receipt for keep. It works when the server is out of memory. A receipt of more than
// the server, or a proxy, takes in one command is refused as [lock.ErrFull].
func (s *Store) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (ok bool, err error) {
	if keytext.IsRecord(key) && !s.receipts.Load() {
		s.receipts.Store(true)
	}
	kept := max(entry.Milliseconds(keep), 1)
	at := s.refOf(key)
	ok, err = s.settle(ctx, at, c, receipt, kept)
	if len(receipt) < largeReceipt || !failure.IsTooLong(err) {
		return ok, failure.UnlessFull(err)
	}
	// The connection may have ended for another reason, and the receipt may land. It cannot once there
	// is an empty one.
	if ok, failed := s.settle(ctx, at, c, nil, kept); failed != nil {
		return false, err
	} else if !ok {
		return false, nil
	}
	if e, err := s.read(ctx, at.name); err == nil && e.Token == c.Token && len(e.Receipt) > 0 {
		return true, nil
	}
	return false, failure.NotApplied("size", err)
}

func (s *Store) settle(ctx context.Context, at entryRef, c lock.Claim, receipt []byte, keep int64) (ok bool, err error) {
	if ok, err = s.settleOwn(ctx, at, c, receipt, keep); ok || err != nil {
		return ok, err
	}
	cmd, ok := s.scriptOn(at, c.Token)
	if !ok {
		return false, nil
	}
	if len(receipt) >= largeReceipt {
		if answer, err := s.settleLarge(ctx, cmd.EntryName, c.Token, receipt, keep); answer != undecided || err != nil {
			return answer == settled, err
		}
	}
	cmd.Load = append(cmd.Room(), c.Token...)
	return boolReply(s.eval(ctx, settleScript, cmd, s.published(keep, receipt)...))
}

// Amend replaces a receipt. Unlike Settle it needs memory.
func (s *Store) Amend(ctx context.Context, key, token string, from, to []byte) (ok bool, err error) {
	cmd, ok := s.scriptOn(s.refOf(key), token)
	if !ok {
		return false, nil
	}
	cmd.Load = entry.AppendPrefix(cmd.Room(), entry.Settled, token)
	ok, err = boolReply(s.eval(ctx, amendScript, cmd, from, to))
	return ok, failure.UnlessFull(err)
}

// Release removes the entry of c.Token unless it is a receipt. It works when the
// server is out of memory.
func (s *Store) Release(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	at := s.refOf(key)
	if ok, err = s.deleteOwn(ctx, at, c); ok || err != nil {
		return ok, err
	}
	if s.notices == nil {
		return s.remove(ctx, at, c.Token)
	}
	return s.remove(ctx, at, c.Token, s.published("")...)
}

// Forget removes the entry of token, even if it is a receipt.
func (s *Store) Forget(ctx context.Context, key, token string) (ok bool, err error) {
	return s.remove(ctx, s.refOf(key), token, s.published("receipt")...)
}

func (s *Store) remove(ctx context.Context, at entryRef, token string, args ...any) (ok bool, err error) {
	cmd, ok := s.scriptOn(at, token)
	if !ok {
		return false, nil
	}
	cmd.Load = entry.AppendPrefix(cmd.Room(), entry.Held, token)
	return boolReply(s.eval(ctx, removeScript, cmd, args...))
}

// scriptOn returns a command for a script on the entry of token. ok is false for a token that
// cannot be in an entry.
func (s *Store) scriptOn(at entryRef, token string) (cmd *wire.Command, ok bool) {
	if len(token) == 0 || len(token) > math.MaxUint8 {
		return nil, false
	}
	return wire.NewCommand(at.name), true
}

// entryRef is the name of an entry, and its key if the entry has to keep it.
type entryRef struct{ name, kept string }

func (s *Store) refOf(key string) (at entryRef) {
	at.name, at.kept = entry.Name(s.prefix, key)
	return at
}

// boolReply converts a script's 1 or 0.
func boolReply(answer any, err error) (ok bool, _ error) {
	switch {
	case err != nil:
		return false, err
	case answer == int64(1):
		return true, nil
	case answer == int64(0):
		return false, nil
	default:
		return false, failure.BadAnswer(answer)
	}
}
