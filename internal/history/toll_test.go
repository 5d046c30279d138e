package history_test

import (
	"sync"
	"time"
)

const (
	allLost = "all replies lost"
	// darkTime is for how long no call gets a reply, now and then: enough for a Locker to give up.
	darkTime     = budget + patienceOfCall
	darkPermille = 3
)

// toll counts the faults of one history. It is safe for concurrent use.
type toll struct {
	counting sync.Mutex
	struck   map[string]int
	dark     time.Time // no call gets a reply until then
	darkened bool
}

func (t *toll) strike(name string) {
	t.counting.Lock()
	defer t.counting.Unlock()
	if t.struck == nil {
		t.struck = map[string]int{}
	}
	t.struck[name]++
}

// darkens reports whether no call gets a reply now, which is so once in some histories.
func (t *toll) darkens(d *dice) bool {
	begins := d.draw(darkPermille)
	t.counting.Lock()
	defer t.counting.Unlock()
	if begins && !t.darkened {
		t.dark, t.darkened = time.Now().Add(darkTime), true
	}
	return time.Now().Before(t.dark)
}

// count adds the faults to the counts of all histories.
func (t *toll) count(c *counts) {
	t.counting.Lock()
	defer t.counting.Unlock()
	for name, n := range t.struck {
		c.add("faults", name, n)
	}
}
