// Package cancelctx has a context with its own cancel function. Leases and the guards of
// package middleware make one when the end of their context is first asked for.
package cancelctx

import "context"

// Context is a context with the function that ends it. The first call of Cancel
// decides the cause.
type Context struct {
	context.Context //nolint:containedctx // it is one

	Cancel context.CancelCauseFunc
}

// New returns a context that ends with parent, or earlier by Cancel.
func New(parent context.Context) *Context {
	ctx, cancel := context.WithCancelCause(parent)
	return &Context{ctx, cancel}
}
