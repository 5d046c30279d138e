package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/httplatch/httplatch/lock"
)

// Unknown says that the running handler does not know whether its effect has happened, because the answer of a call
// to another service was lost or late. ([Upstream] does this by itself.) From here on, a failure of the handler (an
// answer that the guard does not keep, see [WithFinal], a panic, or a crash) does not free the key. Repeats get 409
// (outcome-unknown), until the key expires or an operator frees it. If the guard keeps the answer of the handler,
// repeats get that answer:
//
//	if err := printer.Print(label); err != nil {
//		_ = latch.Unknown(r.Context())
//		http.Error(w, "the label may have been printed", http.StatusBadGateway)
//	}
//
// Call it before the effect where a crash in the middle must not run the handler again ([lock.WithRerunAbandoned],
// [lock.WithTransaction]). If the effect has certainly happened, call [lock.Commit] instead. Under a [Lock] with
// [WithUnknownHold], the key stays taken for a time.
//
// ctx is the context of the handler's request, or derived from it. It may have ended. Unknown returns an error
// outside of [Idempotent], [Dedupe] and Lock, and if they let the handler run unprotected ([WithFailOpen]). It
// returns the errors of lock.Commit if a guard could not record the unknown outcome, and an error that matches
// [lock.ErrLost] after the handler has returned. It is safe for concurrent use.
func Unknown(ctx context.Context) error {
	x := requestOf(ctx)
	switch r := runOf(ctx); {
	case r != nil:
		holdUnknown(ctx)
		_, err := r.noteInEachRun(ctx)
		return err
	case x == nil:
		return errors.New("middleware: Unknown outside of a handler behind a guard, or in one that runs unprotected")
	case x.returned.Load():
		return fmt.Errorf("middleware: Unknown after the handler has returned: %w", lock.ErrLost)
	}
	holdUnknown(ctx)
	return nil
}

// DoNotKeep says that the answer of the running handler is not final, whatever its status. The guards around the
// handler then treat the answer like a 500: they do not keep it and start no cool-down, and the next request with the
// key runs. If the handler also calls [lock.Commit], its work must not be done again, and its answer must not be
// repeated: repeats get 409 result-not-replayable.
//
// ctx is the context of the handler's request, or derived from it. Without a guard, and after the handler has
// returned, DoNotKeep does nothing. It is safe for concurrent use. If the handler writes no answer, [Idempotent] and
// [Dedupe] send nothing either, so that outer middleware can answer, as the error middleware of a framework does.
func DoNotKeep(ctx context.Context) {
	for x := requestOf(ctx); x != nil; x = x.outer {
		x.marks.DoNotKeep.Store(true)
	}
}
