package overload

import (
	"sync"
	"time"
)

// catchUp is the longest unused time that the next commands may use at once. A late timer leaves
// time unused, and all timers are late: without catchUp, the rate would be lower than the one asked
// for.
const catchUp = 20 * time.Millisecond

// pace gives each command its own time.
type pace struct {
	each time.Duration // of one command

	mu   sync.Mutex
	next time.Time
}

func newPace(perSecond int) *pace { return &pace{each: time.Second / time.Duration(perSecond)} }

// wait returns when it is the turn of the command that has asked.
func (p *pace) wait() {
	p.mu.Lock()
	if earliest := time.Now().Add(-catchUp); p.next.Before(earliest) {
		p.next = earliest
	}
	p.next = p.next.Add(p.each)
	turn := p.next
	p.mu.Unlock()
	time.Sleep(time.Until(turn))
}

// stall lets nothing through for d.
func (p *pace) stall(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(d)
}
