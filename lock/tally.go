package lock

import (
	"context"
	"sync"
)

// tally counts what must be over before Close may return. Unlike a WaitGroup
// it can be waited for with a context and while it still grows, and it can be
// shut to newcomers.
type tally struct {
	mu   sync.Mutex
	n    int
	shut bool
	zero chan struct{} // not nil while somebody waits; closed when n is 0
}

// enter counts one more, and reports false if the tally is shut.
func (t *tally) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shut {
		return false
	}
	t.n++
	return true
}

func (t *tally) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	if t.n == 0 && t.zero != nil {
		close(t.zero)
		t.zero = nil
	}
}

func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

func (t *tally) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shut = true
}

func (t *tally) closed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shut
}

// wait returns how many are left when there are none or ctx ends.
func (t *tally) wait(ctx context.Context) int {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return 0
	}
	if t.zero == nil {
		t.zero = make(chan struct{})
	}
	zero := t.zero
	t.mu.Unlock()
	select {
	case <-zero:
		return 0
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.n
	}
}
