package lock

import (
	"container/heap"
	"time"
)

// orphans are the tokens that this process knows to be of orphans. A token is known
// for longer than its entry is to be removed: for as long as an entry of it can be in
// the store, so that the process is never refused by its own claim. At twice as many
// as are removed, the oldest is forgotten for one more.
type orphans struct {
	byToken  map[string]*known
	queue    []*known // in the order in which they came
	first    int      // in queue: those before it are not to be removed
	removing int
}

// known is one of them.
type known struct {
	token    string
	until    time.Time // when it is looked at again
	forgotIn time.Time // when it is forgotten, if it was not removed
	takeover bool
	orphan   *orphan // nil when it was removed, or given up, or is a takeover
	task     *task   // that removes it; nil like orphan
}

// add has o removed, unless it is known already.
func (c *cleaner) add(o *orphan) {
	k := &known{token: o.token, takeover: o.takeover, orphan: o}
	c.mu.Lock()
	if known := c.orphans.byToken[o.token]; known != nil || c.stopped {
		if known != nil && known.takeover { // what was to go on with it may have renewed it
			known.orphan = o
			c.remember(known)
		}
		c.mu.Unlock()
		return
	}
	c.forgetOld(time.Now())
	c.remember(k)
	c.orphans.push(k)
	if o.takeover {
		c.mu.Unlock()
		return
	}
	wait, doubt := time.Duration(0), o.flight.Doubt()
	if doubt.InFlight > 0 {
		wait = maxAwaited
		o.waited = doubt.Lost+doubt.Answered == 0 && !o.answered
	}
	dropped := c.removeLater(k, wait)
	t := k.task
	c.mu.Unlock()
	if dropped {
		o.locker.logDropped(o.ctx)
	}
	if wait > 0 && t != nil { // else it was the oldest itself: those before it are running
		o.flight.WhenLanded(func() { c.kick(t) })
	}
	c.wake()
}

// remember has k known for as long as an entry of it can be in the store. c.mu is held.
func (c *cleaner) remember(k *known) {
	k.until = k.orphan.endures(c.longestLease())
	k.forgotIn = k.until
	if o := k.orphan; o.event.Once {
		k.forgotIn = k.until.Add(o.locker.cfg.keep) // for so long it says that the outcome is unknown
	}
}

// removeLater starts the removal of k, and reports whether the oldest was given up for
// it. c.mu is held.
func (c *cleaner) removeLater(k *known, wait time.Duration) (dropped bool) {
	o := k.orphan
	t := &task{of: Cleanup{Key: o.event.Key, Entry: o.key, Token: o.token, Kind: EventReaped}}
	t.attempt = func(closing bool) (time.Duration, bool) {
		again, done := o.remove(closing)
		t.unsent = o.unsent
		if done {
			c.removed(k)
		}
		return again, done
	}
	k.task = t
	c.orphans.removing++
	c.startAfter(k.task, wait)
	if c.orphans.removing <= c.most {
		return false
	}
	for ; c.orphans.first < len(c.orphans.queue); c.orphans.first++ {
		if oldest := c.orphans.queue[c.orphans.first]; c.giveUp(oldest) {
			c.dropped.Add(1)
			return true
		}
	}
	return false
}

// giveUp gives up the removal of k, and reports whether there was one that does not
// run just now. c.mu is held.
func (c *cleaner) giveUp(k *known) bool {
	if k.task == nil || k.task.index < 0 {
		return false
	}
	heap.Remove(&c.due, k.task.index)
	c.forget(k.task)
	c.orphans.done(k)
	return true
}

func (c *cleaner) removed(k *known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orphans.done(k)
	k.forgotIn = k.until
}

func (o *orphans) push(k *known) {
	if o.byToken == nil {
		o.byToken = make(map[string]*known)
	}
	o.byToken[k.token] = k
	o.queue = append(o.queue, k)
}

// done ends the removal of k, which stays known.
func (o *orphans) done(k *known) {
	if k.task != nil {
		o.removing--
	}
	k.orphan, k.task = nil, nil
}

// forgetOld forgets the tokens of which no entry can be in the store any more, and
// those that are too many. c.mu is held.
func (c *cleaner) forgetOld(now time.Time) {
	o := &c.orphans
	for len(o.queue) > 0 {
		k := o.queue[0]
		tooMany := len(o.queue) > 2*c.most
		if now.Before(k.until) && !tooMany {
			return
		}
		if k.orphan != nil && !tooMany {
			k.until = k.orphan.endures(c.longestLease())
		}
		o.queue[0] = nil
		o.queue, o.first = o.queue[1:], max(o.first-1, 0)
		switch running := k.task != nil && k.task.index < 0; {
		case running:
			k.until = now.Add(longPause)
			o.queue = append(o.queue, k)
		case now.Before(k.until) && !tooMany:
			o.queue = append(o.queue, k)
		case now.Before(k.forgotIn) && !tooMany: // its removal goes on: other processes are refused for as long
			k.until = now.Add(c.core.maxLag + c.longestLease())
			o.queue = append(o.queue, k)
		default:
			c.giveUp(k)
			if o.byToken[k.token] == k { // else it was adopted, and may be known anew
				delete(o.byToken, k.token)
			}
		}
	}
}

// dead reports whether token is of an orphan that may be removed.
func (c *cleaner) dead(token string) bool {
	k := c.find(token)
	return k != nil && !k.takeover
}

// takeover reports whether token is of a takeover that got no answer.
func (c *cleaner) takeover(token string) bool {
	k := c.find(token)
	return k != nil && k.takeover
}

func (c *cleaner) find(token string) *known {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.orphans.byToken[token]
}

// adopted forgets a takeover that has a holder now.
func (c *cleaner) adopted(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.orphans.byToken, token)
}

func (c *cleaner) longestLease() time.Duration { return time.Duration(c.core.lease.Load()) }
