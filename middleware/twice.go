package middleware

import (
	"context"
	"reflect"
	"sync"

	"github.com/httplatch/httplatch/lock"
)

// twiceHint notifies the developer, once, of a guard that is mounted twice around one
// handler. The inner one steps aside: it would refuse every request because of the
// entry that the outer one holds for it.
type twiceHint struct{ once sync.Once }

func (h *twiceHint) log(ctx context.Context, guard *guardLog) {
	h.once.Do(func() {
		guard.mistake(ctx,
			"this guard is mounted twice around one handler, on the same key; the inner one does nothing, "+
				"and its own settings do not apply; mount it once, on the route or around the router")
	})
}

// within reports whether the handler of c, or one around it, runs under this key of
// store. The context ends with the lease, by its release or its loss.
func (c *lockedContext) within(key string, store lock.Store) bool {
	for ; c != nil; c = lockedOf(c.Context) {
		if c.key == key && c.Err() == nil && sameStore(c.guard.locker.Store(), store) {
			return true
		}
	}
	return false
}

// within reports whether r, or a run around it, is of this record of store.
func (r *ran) within(id string, store lock.Store) bool {
	for ; r != nil; r = r.outer {
		if r.id == id && r.context.Err() == nil && sameStore(r.guard.locker.Store(), store) {
			return true
		}
	}
	return false
}

// sameStore compares stores of any type, also of one that == would panic for.
func sameStore(a, b lock.Store) bool { return reflect.ValueOf(a).Comparable() && a == b }
