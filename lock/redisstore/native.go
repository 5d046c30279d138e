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
	"github.com/httplatch/httplatch/lock/redisstore/internal/group"
)

// Newer servers compare a value and act on it in one command of their own, which costs
// them half of what a script does:
//
//	DELIFEQ name value                 Valkey 9.0
//	DELEX name IFEQ value              Redis 8.4
//	SET name value IFEQ old PX ms      Valkey 8.1, Redis 8.4
//
// They compare all of the value, which is built from the claim. Another value may be the
// token's too: of a longer linger, with the fence of an earlier holder, of a claim that
// the caller knows only in part, or a receipt. So "not equal" decides nothing, and the
// script does. It also does what these commands cannot: it keeps fences, notifies
// waiters, compares leases, and needs no memory.

// A server either deletes what is equal, or replaces it, or both.
const (
	deletes = iota
	replaces
	abilities
)

// ability is whether a server has a command, as it has answered. Which command that is
// differs from server to server, and a failover or an upgrade changes it: a server that
// had none is asked again after a while, with the command of a caller. One that has lost
// its command says so, and executes nothing.
type ability struct {
	spelling atomic.Int32 // that it understands, counted from 1; 0: none that is known
	next     atomic.Int64 // when to ask, in ms of Unix time
}

const (
	askAgain = 10 * time.Minute
	never    = math.MaxInt64
)

// choose returns the first spelling to try. ok is false if there is none. Of many callers
// one asks, so that whatever becomes of an unknown command, it becomes of one.
func (a *ability) choose() (n int, ok bool) {
	if n = int(a.spelling.Load()); n > 0 {
		return n - 1, true
	}
	next, now := a.next.Load(), time.Now().UnixMilli()
	return 0, now >= next && a.next.CompareAndSwap(next, now+askAgain.Milliseconds())
}

// understands notes that the server has executed a spelling.
func (a *ability) understands(n int) { a.spelling.Store(int32(n) + 1) } //nolint:gosec // of two

// forget has the server asked again when it is time.
func (a *ability) forget() { a.spelling.Store(0) }

// forbid has the server asked no more.
func (a *ability) forbid() {
	a.next.Store(never)
	a.forget()
}

// spelling makes a command that compares with the load. Servers that can do the same
// spell it differently.
type spelling func(*group.Command)

// act has the server act on the entry that is there by itself, if that is as c has stored it.
// done is true if it has, and false with errByScript if the script is to decide.
func (s *Store) act(ctx context.Context, at spot, c lock.Claim, what int, spellings ...spelling) (done bool, err error) {
	if c.Attempt < 1 || c.Fenced || len(c.Token) == 0 || len(c.Token) > math.MaxUint8 {
		return false, errByScript // not all of the value is known
	}
	server, err := s.to.route(ctx, at.name)
	if err != nil {
		return false, err
	}
	can := &server.can[what]
	n, ok := can.choose()
	v := entry.New(c, at.kept)
	for ; ok && n < len(spellings); n++ {
		cmd := group.NewCommand(at.name)
		cmd.Load = v.AppendTo(cmd.Room())
		spellings[n](cmd)
		answer, err := s.to.do(ctx, cmd)
		if err == nil {
			can.understands(n)
			return acted(answer)
		}
		if ok, err = s.misses(can, cmd, err); err != nil {
			return false, err
		}
	}
	return false, errByScript
}

// acted is what the answer to an act means.
func acted(answer any) (done bool, err error) {
	switch answer {
	case int64(1), "OK":
		return true, nil
	case int64(0), nil:
		return false, errByScript
	}
	return false, failure.BadAnswer(answer)
}

// misses takes in why a server has not executed cmd. It returns err if that is how the
// call ends, and else whether to try the next spelling, before the script.
func (s *Store) misses(can *ability, cmd *group.Command, err error) (next bool, _ error) {
	switch class := failure.ClassOf(err); {
	case failure.IsSyntaxError(err):
		can.forget()
		return true, nil
	case !errors.Is(err, lock.ErrNotApplied):
		if failure.IsReply(err) {
			can.forget() // a proxy in between, which has its own words for an unknown command
		}
		return false, err
	case class == "command":
		can.forget()
		return true, nil
	case class == "NOPERM":
		can.forbid()
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
func (s *Store) deleteOwn(ctx context.Context, at spot, c lock.Claim) (done bool, err error) {
	if s.notices != nil {
		return false, errByScript
	}
	return s.act(ctx, at, c, deletes,
		func(cmd *group.Command) { cmd.With("delifeq", cmd.Entry, &cmd.Load) },
		func(cmd *group.Command) { cmd.With("delex", cmd.Entry, "ifeq", &cmd.Load) })
}

// renewOwn sets the end of the entry of c, which is no earlier than it was if no call
// asks for a longer lease.
func (s *Store) renewOwn(ctx context.Context, at spot, c lock.Claim) (done bool, err error) {
	if !c.Longest {
		return false, errByScript
	}
	return s.act(ctx, at, c, replaces, func(cmd *group.Command) {
		cmd.With("set", cmd.Entry, &cmd.Load, "ifeq", &cmd.Load, "px", keepFor(c))
	})
}

// settleOwn puts the receipt in the place of the entry of c.
func (s *Store) settleOwn(ctx context.Context, at spot, c lock.Claim, receipt []byte, keep int64) (done bool, err error) {
	if s.notices != nil {
		return false, errByScript
	}
	return s.act(ctx, at, c, replaces, func(cmd *group.Command) {
		cmd.With("set", cmd.Entry, entry.Receipt(cmd.Load, receipt), "ifeq", &cmd.Load, "px", keep)
	})
}
