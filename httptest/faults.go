package latchtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Op names a method of [lock.Store] that can be made to fail.
type Op string

// The methods of a store that change something.
const (
	Claim   Op = "claim"
	Renew   Op = "renew"
	Settle  Op = "settle"
	Release Op = "release"
)

// LoseReply returns s with the replies to the next n calls of op lost: the calls are
// applied, and their callers get an error that leaves the outcome open (it does not match
// [lock.ErrNotApplied]), as if the connection had been reset after the request was read.
// All other calls pass unchanged. A call whose context has already ended also passes, and does not
// count.
//
// The returned store is safe for concurrent use. It is a [lock.Inspector] if s is one, and has
// the MaxLag of s. A [lock.Locker] always uses it like a store across a network, even if s is a
// memory store. If s is a [lock.Transactor], so is the returned store, and a [Settle] that fails
// may be the commit of a transaction. Call other methods of s, such as Close, on s itself. To
// combine faults, nest the stores: a call passes the outermost store first, and a call that is
// lost there does not reach the inner stores.
//
// LoseReply panics if s is nil, op is not one of the constants, or n is less than 1.
func LoseReply(s lock.Store, op Op, n int) lock.Store {
	checkFault("LoseReply", s, op, n)
	return disturb(s, nextCalls(op, n), loseReply, 0)
}

// LoseRequest returns s with the next n calls of op lost on their way: they have no
// effect, and their callers get an error that leaves the outcome open, as if the
// connection had been reset before the request was read. Otherwise it is like
// [LoseReply].
func LoseRequest(s lock.Store, op Op, n int) lock.Store {
	checkFault("LoseRequest", s, op, n)
	return disturb(s, nextCalls(op, n), loseRequest, 0)
}

// Stall returns s with the next n calls of op held up, as by a server or a network that hangs. Each
// call returns when its context ends, with an error that leaves the outcome open. It is applied
// when later has passed since it was made, whether its caller still waits or not. A call whose
// context never ends does not return.
//
// A stalled call waits for a timer of the length later. Then it has a second to be applied. The
// MaxLag of the returned store is the MaxLag of s plus later plus that second. Otherwise Stall is
// like [LoseReply]. It also panics if later is not positive.
func Stall(s lock.Store, op Op, n int, later time.Duration) lock.Store {
	checkFault("Stall", s, op, n)
	if later <= 0 {
		panic(fmt.Sprintf("latchtest: Stall for %v: it takes some time", later))
	}
	return disturb(s, nextCalls(op, n), stall(later), later+lateAnswer)
}

func checkFault(function string, s lock.Store, op Op, n int) {
	switch {
	case s == nil:
		panic("latchtest: " + function + " of a nil lock.Store")
	case n < 1:
		panic(fmt.Sprintf("latchtest: %s of %d calls: at least one has to fail", function, n))
	}
	switch op {
	case Claim, Renew, Settle, Release:
	default:
		panic(fmt.Sprintf("latchtest: %s of %q: not one of claim, renew, settle and release", function, op))
	}
}

// nextCalls hits the next n calls of op.
func nextCalls(op Op, n int) func(Op, string) bool {
	var left atomic.Int64
	left.Store(int64(n))
	return func(called Op, _ string) bool { return called == op && left.Add(-1) >= 0 }
}

// fault replaces a call of the store. send makes the call.
type fault func(ctx context.Context, op Op, send func(context.Context)) error

var errReset = errors.New("connection reset")

// loseReply drops the error of the call itself: it was in the reply.
func loseReply(ctx context.Context, op Op, send func(context.Context)) error {
	send(ctx)
	return fmt.Errorf("latchtest: lost the reply to a %s: %w", op, errReset)
}

func loseRequest(_ context.Context, op Op, _ func(context.Context)) error {
	return fmt.Errorf("latchtest: lost a %s: %w", op, errReset)
}

// lateAnswer bounds the time of a stalled call once it goes on.
const lateAnswer = time.Second

func stall(later time.Duration) fault {
	return func(ctx context.Context, op Op, send func(context.Context)) error {
		time.AfterFunc(later, func() {
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateAnswer)
			defer cancel()
			send(late)
		})
		<-ctx.Done()
		return fmt.Errorf("latchtest: stalled a %s: %w", op, ctx.Err())
	}
}
