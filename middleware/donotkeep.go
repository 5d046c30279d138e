package middleware

import "context"

// DoNotKeep says that the answer of the running handler is not final, whatever its status. The
// guards around the handler then treat the answer like a 500: they do not keep it and start no
// cool-down, and the next request with the key runs. DoNotKeep is the opposite of [lock.Commit].
// If a handler calls both, its work must not be done again, and its answer must not be repeated:
// repeats get 409 result-not-replayable.
//
// ctx is the context of the handler's request, or derived from it. Without a guard, and after the
// handler has returned, DoNotKeep does nothing. It is safe for concurrent use.
//
// If the handler writes no answer, [Idempotent] and [Dedupe] send nothing either, so that outer
// middleware can answer, as the error middleware of a framework does.
func DoNotKeep(ctx context.Context) {
	for x := requestOf(ctx); x != nil; x = x.outer {
		x.marks.DoNotKeep.Store(true)
	}
}
