package lock_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// events collects what Lockers report.
type events struct {
	mu   sync.Mutex
	seen []lock.Event
}

func (v *events) observe(_ context.Context, e lock.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = append(v.seen, e)
}

func (v *events) count(kind lock.EventKind) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, e := range v.seen {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// only returns the one event of a kind.
func (v *events) only(t *testing.T, kind lock.EventKind) lock.Event {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	var found []lock.Event
	for _, e := range v.seen {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	require.Len(t, found, 1, "%s in %v", kind, v.seen)
	return found[0]
}
