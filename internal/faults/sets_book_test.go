package faults_test

import (
	"slices"
	"strings"
	"sync"
)

// The promises of sets, permits and tickets that the campaign checks, in addition to the promises of single keys.
const (
	allOrNone  = "all or none"
	permits    = "permits"
	onceTicket = "once a ticket"
	progress   = "progress"
)

var setPromises = []string{oneHolder, allOrNone, permits, onceTicket, noOrphan, progress, bounded, "no-leak"}

// setBook has the holders of all processes.
type setBook struct {
	violated func(promise, format string, args ...any)
	asking   sync.WaitGroup

	mu      sync.Mutex
	holders map[string][]*setHolder // by key, and by the name of a resource with permits
	resumed map[int]int             // by ticket
}

// setHolder is work under a set, a permit or a resumed key. valid may ask another process, and returns
// false if the work is over, or its lease.
type setHolder struct{ valid func() bool }

// enter notes that a holder has names, of which each can have n holders. The lease of each holder is
// valid from before enter to its end. So holders that say later on that they are valid were so at the
// same time.
func (b *setBook) enter(n int, names []string, valid func() bool) (leave func()) {
	mine := &setHolder{valid}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		others := slices.Clone(b.holders[name])
		b.holders[name] = append(b.holders[name], mine)
		if len(others) >= n {
			b.asking.Go(func() { b.ask(n, name, append(others, mine)) })
		}
	}
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, name := range names {
			b.holders[name] = slices.DeleteFunc(b.holders[name], func(h *setHolder) bool { return h == mine })
		}
	})
}

// ask asks the holders of name whether they are valid. name can have n holders.
func (b *setBook) ask(n int, name string, holders []*setHolder) {
	valid := 0
	for _, h := range holders {
		if h.valid() {
			valid++
		}
	}
	if valid <= n {
		return
	}
	promise := oneHolder
	if strings.HasPrefix(name, "export") {
		promise = permits
	}
	b.violated(promise, "%d valid holders of %s", valid, name)
}

// wasResumed notes that a process was granted a ticket.
func (b *setBook) wasResumed(ticket int) {
	b.mu.Lock()
	b.resumed[ticket]++
	times := b.resumed[ticket]
	b.mu.Unlock()
	if times > 1 {
		b.violated(onceTicket, "ticket %d was resumed %d times", ticket, times)
	}
}
