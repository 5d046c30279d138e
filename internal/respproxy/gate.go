package respproxy

import "sync"

// gate lets everything pass or nothing.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil when open; closed when it opens again
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// wait returns true when the gate is open, false when done ends before.
func (g *gate) wait(done <-chan struct{}) bool {
	for {
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut == nil {
			return true
		}
		select {
		case <-shut:
		case <-done:
			return false
		}
	}
}
