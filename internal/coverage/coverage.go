// Package coverage lets a test ask, with a request, whether its route has a guard: the guard
// notes that in the request's context, and answers in place of the handler.
package coverage

import (
	"context"
	"sync/atomic"
)

// Probe is in the context of such a request.
type Probe struct{ guarded atomic.Bool }

type contextKey struct{}

// With returns a context with a new probe.
func With(ctx context.Context) (context.Context, *Probe) {
	p := new(Probe)
	return context.WithValue(ctx, contextKey{}, p), p
}

// Guarded reports whether the request has reached a guard.
func (p *Probe) Guarded() bool { return p.guarded.Load() }

// Asked reports whether ctx belongs to a request that only asks for a guard, and notes that
// there is one.
func Asked(ctx context.Context) bool {
	p, asked := ctx.Value(contextKey{}).(*Probe)
	if asked {
		p.guarded.Store(true)
	}
	return asked
}
