package middleware

import "context"

// DoNotKeep says that the answer of the running handler is not final, whatever its status, as
// an answer of 500 is not: no guard around the handler keeps it, or starts a cool-down, and
// the next request with the key runs. It is the opposite of [lock.Commit]. A handler that has
// called both has done what must not be done again, and its answer is not the one to repeat:
// repeats get 409 result-not-replayable.
//
// ctx is the context of the handler's request, or derived from it. Where no guard is around, and once
// the handler has returned, DoNotKeep does nothing. It is safe for concurrent use.
//
// If the handler answers nothing at all, [Idempotent] and [Dedupe] send nothing either, so that
// what is mounted outside can answer, as the error middleware of a framework does.
func DoNotKeep(ctx context.Context) {
	for l := lockedOf(ctx); l != nil; l = lockedOf(l.Context) {
		l.passing.Store(true)
	}
	for r := ranOf(ctx); r != nil; r = r.outer {
		r.passing.Store(true)
	}
}

type lockedKey struct{}

// lockedOf returns the innermost lock that ctx is under, nil if there is none.
func lockedOf(ctx context.Context) *lockedContext {
	c, _ := ctx.Value(lockedKey{}).(*lockedContext)
	return c
}
