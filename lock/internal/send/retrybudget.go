package send

import (
	"sync/atomic"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// In thousandths of a token.
const (
	token     = 1000
	perCall   = token / 5        // for each answered call
	perMilli  = 10 * token / 1e3 // for each millisecond
	reserve   = 100 * token      // the bound for tokens that time adds: ten seconds of them
	mostSaved = 1000 * token
)

// RetryBudget is a token bucket that pays for all sends except the first of a call, second sends
// and clean-up alike. An answered call adds a fifth of a token, and a second
// adds ten. So a store that answers fewer calls gets fewer repeats, and the repeats of an
// outage cannot keep the store from coming back.
//
// The sources of the figures are Finagle's retry budgets (20 % and 10 a second) and gRPC's
// proposal A6.
type RetryBudget struct {
	saved  atomic.Int64
	filled atomic.Int64 // the millisecond up to which time has added tokens
}

// Take takes a token, and reports whether there was one.
func (b *RetryBudget) Take() bool {
	b.fill()
	for {
		saved := b.saved.Load()
		if saved < token {
			return false
		}
		if b.saved.CompareAndSwap(saved, saved-token) {
			return true
		}
	}
}

// Give gives back a token that was not needed, if there is room for it.
func (b *RetryBudget) Give() { b.add(token, mostSaved) }

// add adds tokens, as long as there are fewer than most.
func (b *RetryBudget) add(tokens, most int64) {
	if room := most - b.saved.Load(); room > 0 {
		b.saved.Add(min(tokens, room))
	}
}

// Tokens returns the number of tokens.
func (b *RetryBudget) Tokens() int {
	b.fill()
	return int(b.saved.Load() / token)
}

// fill adds the tokens for the time that has passed.
func (b *RetryBudget) fill() {
	at, last := int64(clock.Now())/1e6, b.filled.Load()
	if at > last && b.filled.CompareAndSwap(last, at) {
		b.add((at-last)*perMilli, reserve)
	}
}
