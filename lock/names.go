package lock

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/httplatch/httplatch/internal/keytext"
)

// names holds the names of locks that were granted: an operator may have misspelt one. A map is never
// changed, so that the many grants of known names only read it.
type names struct {
	known atomic.Pointer[map[string]bool]
}

// maxNames bounds the names. A program has few, since clients do not choose them.
const maxNames = 64

func (n *names) note(key string) {
	name := keytext.Name(key)
	for name != "" {
		old := n.known.Load()
		if old != nil && ((*old)[name] || len(*old) == maxNames) {
			return
		}
		grown := map[string]bool{name: true}
		if old != nil {
			maps.Copy(grown, *old)
		}
		if n.known.CompareAndSwap(old, &grown) {
			return
		}
	}
}

// list returns the names, sorted.
func (n *names) list() []string {
	if known := n.known.Load(); known != nil {
		return slices.Sorted(maps.Keys(*known))
	}
	return nil
}
