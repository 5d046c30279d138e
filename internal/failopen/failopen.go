// Package failopen lets middleware tell a Locker that the work will run even
// if the store gives no answer, so that the Locker neither cleans up behind it
// meanwhile nor lets a duplicate of this process run at the same time.
package failopen

import "context"

// Hold is filled by Locker.Acquire when it fails for want of the store.
type Hold struct {
	// End, if set, must be called when the unprotected work is over.
	End func()
}

// Key is the context key of the Hold.
type Key struct{}

// With returns a context that asks Acquire to fill h.
func With(ctx context.Context, h *Hold) context.Context {
	return context.WithValue(ctx, Key{}, h)
}

// From returns the Hold of ctx, nil if there is none.
func From(ctx context.Context) *Hold {
	h, _ := ctx.Value(Key{}).(*Hold)
	return h
}
