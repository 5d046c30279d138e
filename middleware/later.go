package middleware

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// Later says that the answer of the running handler is not the final one: a worker, here or in another process, will
// give the final answer by [Finish], with the ticket that Later returns. The handler enqueues the ticket and answers
// 202, with a Location where the client can follow the work. Repeats get this answer until Finish, and then the final
// one.
//
// A ticket is at most 512 bytes of A to Z, a to z, 0 to 9, "-" and "_". Its bearer can answer the request, so keep it
// out of logs. It is valid for as long as the record is kept ([lock.WithKeep]), and not at all if the answer of the
// handler is not kept. With [lock.WithTransaction], insert the job and its ticket in the handler's transaction: they
// and the 202 are committed together. Otherwise call [lock.Commit], and then enqueue the ticket as the last step:
// without Commit, a request that fails after the enqueue would run again, and enqueue a second job.
//
// ctx is the context of the handler's request, or derived from it. The ticket belongs to the innermost [Idempotent]
// or [Dedupe] around the handler. Later returns an error without such a guard, if the guard runs the handler
// unprotected ([WithFailOpen]), after the handler has returned, and after its answer has begun to leave, as a
// streamed one does. Over a store that cannot replace a receipt, the error matches errors.ErrUnsupported.
func Later(ctx context.Context) (ticket string, err error) {
	r := runOf(ctx)
	if r == nil || r.returned.Load() {
		return "", errors.New("middleware: Later outside of a handler behind Idempotent or Dedupe, or in one that runs unprotected")
	}
	if ticket, err = r.Ticket(); err != nil {
		return "", fmt.Errorf("middleware: Later: %w", err)
	}
	r.marks.Pending.Store(true)
	return ticket, nil
}

// Finish gives the final answer to the request of a ticket of [Later]. From then on, every repeat gets this answer,
// for as long as the record would have been kept anyway. l is a Locker over the store of the guard. In work that runs
// in a transaction of that store ([lock.Locker.Once] with [lock.WithTransaction]), ctx is the context of the work,
// and the answer is committed with the work's rows.
//
// A request has one final answer. Finish may be called again with the same answer, as after an error, and returns
// nil. It returns one of these errors:
//
//   - An error that matches [lock.ErrSettled] if there is another final answer. The earlier answer stays.
//   - An error that matches [lock.ErrHeld] if the handler has not returned within the budget: its answer comes first.
//     Call Finish again a little later.
//   - An error that matches [lock.ErrLost] if no repeat will get this answer: the keep of the record is over, or the
//     request has failed and was run again, with another ticket.
//   - An error that matches [lock.ErrUnavailable] if the store did not serve a call within the budget. If it also
//     matches [lock.ErrUnknown], the answer may have been stored. Call Finish again. The error matches [lock.ErrFull]
//     if the store has no room for the answer.
//   - An error that matches errors.ErrUnsupported over a store that cannot replace a receipt.
//   - An error that matches [lock.ErrClosed] after Close, or the cause of ctx if ctx ends first.
//   - Another error if the ticket was altered, if no record can have the answer, or if the record cannot be read,
//     because l lacks the seal of the guard's store (package sealed), for example, or is missing before its keep is
//     over: the request has failed and has not run again, an operator has freed it, or l has another store or prefix
//     than the guard. So do not count the job as done.
//
// If the process of the handler has vanished before its answer was recorded, the outcome of the request is unknown,
// and Finish settles it with the final answer. In a transaction, Finish returns an error that matches
// [lock.ErrAbandoned] instead. The same for the ticket of a [lock.Unfinished].
func Finish(ctx context.Context, l *lock.Locker, ticket string, answer Answer) error {
	mustNot(l == nil, "Finish: nil *lock.Locker")
	final, err := answer.record()
	if err != nil {
		return fmt.Errorf("middleware: Finish: %w", err)
	}
	return l.Amend(ctx, ticket, func(receipt []byte) ([]byte, error) {
		if bytes.Equal(receipt, final) {
			return final, nil
		}
		open, err := record.MayBeReplaced(receipt)
		switch {
		case err != nil:
			return nil, fmt.Errorf("middleware: Finish: %w: the guard seals its records and this Locker does not, or has a newer version", err)
		case !open:
			return nil, fmt.Errorf("middleware: Finish: the request has another final answer: %w", lock.ErrSettled)
		}
		return final, nil
	})
}
