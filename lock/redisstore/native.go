package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// Newer servers compare a value and act on it in one command, which costs
// them half as much as a script:
//
//	DELIFEQ name value                 Valkey 9.0
//	DELEX name IFEQ value              Redis 8.4
//	SET name value IFEQ old PX ms      Valkey 8.1, Redis 8.4
//
// They compare the whole value, which is built from the claim. A value that differs can still
// be an entry of the token: its linger is longer, it keeps the fence of an earlier holder, it
// is a receipt, or the caller passed only the token. So after "not equal" the script
// decides. Unlike the script, these commands cannot keep fences, notify waiters, compare
// leases, or run without memory.

// A server can delete an equal value, or replace it, or both.
const (
	deletes = iota
	replaces
	abilities
)

// ability notes from a server's answers whether it has a command, and in which spelling. A
// failover or an upgrade can change this. If a server lacks the command, the command of a caller
// tries it again after a while. A server that no longer has the command reports an error, and
// executes nothing.
type ability struct {
	spelling atomic.Int32 // that the server understands, counted from 1; 0: none is known
	next     atomic.Int64 // the time of the next try, in ms of Unix time
}

const (
	askAgain = 10 * time.Minute
	never    = math.MaxInt64
)

// choose returns the first spelling to try. ok is false if there is none to try. Only one of
// several callers tries an unproven command, so that an unknown command costs only one call.
func (a *ability) choose() (n int, ok bool) {
	if n = int(a.spelling.Load()); n > 0 {
		return n - 1, true
	}
	next, now := a.next.Load(), time.Now().UnixMilli()
	return 0, now >= next && a.next.CompareAndSwap(next, now+askAgain.Milliseconds())
}

// proven reports whether the server has executed a spelling.
func (a *ability) proven(n int) bool { return a.spelling.Load() == int32(n)+1 } //nolint:gosec // of two

// understands notes that the server has executed a spelling.
func (a *ability) understands(n int) { a.spelling.Store(int32(n) + 1) } //nolint:gosec // of two

// forget lets a later call try the command again, at the earliest at next.
func (a *ability) forget() { a.spelling.Store(0) }

// giveUp makes sure that no call tries the command again.
func (a *ability) giveUp() {
	a.next.Store(never)
	a.forget()
}

// spelling makes a command that compares the value with the load of the claim. Servers spell the
// same command differently.
type spelling func(*wire.Command)

// compareAndAct lets the server act on the entry without a script, if the entry is exactly the
// value that c has stored. done is true if the server has acted. If done is false and err is nil,
// the script has to decide.
func (s *Store) compareAndAct(ctx context.Context, at entryRef, c lock.Claim, action int, spellings ...spelling) (done bool, err error) {
	if c.Attempt < 1 || c.Fenced || len(c.Token) == 0 || len(c.Token) > math.MaxUint8 {
		return false, nil // a part of the value is unknown
	}
	server, err := s.nodes.route(ctx, at.name)
	if err != nil {
		return false, err
	}
	can := &server.can[action]
	n, ok := can.choose()
	v := entry.New(c, at.kept)
	for ; ok && n < len(spellings); n++ {
		cmd := wire.NewCommand(at.name)
		cmd.Load, cmd.Alone = v.AppendTo(cmd.Room()), !can.proven(n)
		spellings[n](cmd)
		answer, err := s.nodes.do(ctx, cmd)
		if err == nil {
			can.understands(n)
			return actResult(answer)
		}
		if ok, err = s.noteMiss(can, cmd, err); err != nil {
			return false, err
		}
	}
	return false, nil
}

// actResult converts the answer to a compare-and-act command.
func actResult(answer any) (done bool, err error) {
	switch answer {
	case int64(1), "OK":
		return true, nil
	case int64(0), nil:
		return false, nil
	}
	return false, failure.BadAnswer(answer)
}

// noteMiss notes the error with which a server has not executed cmd. It returns err if the call
// ends with err. Otherwise it reports whether to try the next spelling before the script.
func (s *Store) noteMiss(can *ability, cmd *wire.Command, err error) (next bool, _ error) {
	switch class := failure.ClassOf(err); {
	case failure.IsSyntaxError(err):
		can.forget()
		return true, nil
	case !errors.Is(err, lock.ErrNotApplied):
		if failure.IsReply(err) {
			can.forget() // a proxy with its own error for an unknown command
		}
		return false, err
	case class == "command":
		can.forget()
		return true, nil
	case class == "NOPERM":
		can.giveUp()
		s.forbidden.Do(func() {
			slog.Default().Info("redisstore: the server could compare and delete by itself, but not for this user: "+
				"it runs a script instead, which costs it more", "command", cmd.Name())
		})
		return false, nil
	case class == "OOM":
		return false, nil // the script needs no memory
	}
	return false, err
}

// deleteOwn deletes the entry of c.
func (s *Store) deleteOwn(ctx context.Context, at entryRef, c lock.Claim) (done bool, err error) {
	if s.notices != nil {
		return false, nil
	}
	return s.compareAndAct(ctx, at, c, deletes,
		func(cmd *wire.Command) { cmd.With("delifeq", cmd.EntryName, &cmd.Load) },
		func(cmd *wire.Command) { cmd.With("delex", cmd.EntryName, "ifeq", &cmd.Load) })
}

// renewOwn sets the end of the entry of c. This does not shorten the lease, unless another call
// has asked for a longer one.
func (s *Store) renewOwn(ctx context.Context, at entryRef, c lock.Claim) (done bool, err error) {
	if !c.Longest {
		return false, nil
	}
	return s.compareAndAct(ctx, at, c, replaces, func(cmd *wire.Command) {
		cmd.With("set", cmd.EntryName, &cmd.Load, "ifeq", &cmd.Load, "px", keepFor(c))
	})
}

// settleOwn puts the receipt in the place of the entry of c.
func (s *Store) settleOwn(ctx context.Context, at entryRef, c lock.Claim, receipt []byte, keep int64) (done bool, err error) {
	if s.notices != nil {
		return false, nil
	}
	return s.compareAndAct(ctx, at, c, replaces, func(cmd *wire.Command) {
		cmd.With("set", cmd.EntryName, entry.Receipt(cmd.Load, receipt), "ifeq", &cmd.Load, "px", keep)
	})
}
