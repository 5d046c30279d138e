package client

import (
	"sync"
	"time"
)

// trickleEvery is the interval at which the budget allows one more repetition, for any number of
// requests.
const trickleEvery = 10 * time.Second

// budget is a token bucket: requests pay in, repetitions take out.
type budget struct {
	perRequest, burst float64

	mu     sync.Mutex
	tokens float64
	filled time.Time // when the trickle was last counted
}

func newBudget(perRequest float64, burst int) *budget {
	return &budget{perRequest: perRequest, burst: float64(burst), tokens: float64(burst), filled: time.Now()}
}

// deposit counts a request.
func (b *budget) deposit() {
	b.mu.Lock()
	b.tokens += b.perRequest // take limits the tokens to burst
	b.mu.Unlock()
}

// take reports whether a request may be repeated, and takes the repetition out of the budget.
func (b *budget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(b.tokens+float64(now.Sub(b.filled))/float64(trickleEvery), b.burst)
	b.filled = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
