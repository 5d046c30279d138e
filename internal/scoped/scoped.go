// Package scoped lets middleware say to Locker.Once whose work a call is.
package scoped

import "context"

// Context is the context of one call of Locker.Once, and whose work that is. The
// Locker splits it and keeps neither it nor what it is part of: a value of the
// context would cost an allocation for every request, and live as long as the run.
type Context struct {
	context.Context //nolint:containedctx // it is one

	Scope string
}

// Split returns the context below ctx and the scope, "" if ctx has none.
func Split(ctx context.Context) (below context.Context, scope string) {
	if s, ok := ctx.(*Context); ok {
		return s.Context, s.Scope
	}
	return ctx, ""
}
