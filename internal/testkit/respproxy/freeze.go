package respproxy

import "sync"

// freeze stops all traffic while it lasts.
type freeze struct {
	mu    sync.Mutex
	ended chan struct{} // nil unless it lasts; closed when it ends
}

func (f *freeze) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended == nil {
		f.ended = make(chan struct{})
	}
}

func (f *freeze) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended != nil {
		close(f.ended)
		f.ended = nil
	}
}

// wait returns true when nothing is frozen, false when done ends before.
func (f *freeze) wait(done <-chan struct{}) bool {
	for {
		f.mu.Lock()
		ended := f.ended
		f.mu.Unlock()
		if ended == nil {
			return true
		}
		select {
		case <-ended:
		case <-done:
			return false
		}
	}
}
