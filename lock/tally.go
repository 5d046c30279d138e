package lock

import (
	"context"
	"sync"
	"sync/atomic"
)

// tally counts what must be over before Close may return. Unlike a WaitGroup
// it can be waited for with a context and while it still grows, and it can be
// shut to newcomers.
type tally struct {
	state   atomic.Int64 // the number, and tallyShut
	waiting atomic.Bool  // zero is not nil

	mu   sync.Mutex
	zero chan struct{} // not nil while somebody waits; closed when nobody is left
}

const tallyShut = 1 << 62

// enter counts one more, and reports false if the tally is shut.
func (t *tally) enter() bool {
	for {
		s := t.state.Load()
		if s&tallyShut != 0 {
			return false
		}
		if t.state.CompareAndSwap(s, s+1) {
			return true
		}
	}
}

// leave counts one less. If that leaves nobody while somebody waits, it says so.
// A wait announces itself before it looks at the number, and leave lowers the
// number before it looks for the announcement, so one of the two sees the other.
func (t *tally) leave() {
	if t.state.Add(-1)&^tallyShut != 0 || !t.waiting.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.announce()
}

// announce ends all waits if nobody is left. t.mu is held.
func (t *tally) announce() {
	if t.zero != nil && t.count() == 0 {
		close(t.zero)
		t.zero = nil
		t.waiting.Store(false)
	}
}

func (t *tally) count() int { return int(t.state.Load() &^ tallyShut) }

func (t *tally) close() { t.state.Or(tallyShut) }

func (t *tally) closed() bool { return t.state.Load()&tallyShut != 0 }

// wait returns how many are left when there are none or ctx ends.
func (t *tally) wait(ctx context.Context) int {
	t.mu.Lock()
	if t.zero == nil {
		t.zero = make(chan struct{})
		t.waiting.Store(true)
	}
	zero := t.zero
	t.announce()
	t.mu.Unlock()
	select {
	case <-zero:
		return 0
	case <-ctx.Done():
		return t.count()
	}
}
