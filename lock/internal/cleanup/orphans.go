package cleanup

import "time"

// orphans holds the tokens of orphans. A token is kept for longer than its entry is
// removed: for as long as an entry of it can be in the store, so that this process is never
// refused by its own claim. It holds at most twice maxOrphans, and forgets the oldest.
type orphans struct {
	byToken  map[string]*orphanToken
	queue    []*orphanToken // in the order of arrival
	first    int            // in queue: the removals before it have ended
	removing int
}

// orphanToken is the token of an orphan.
type orphanToken struct {
	token     string
	fate      Fate
	examineAt time.Time // when it is examined again
	forgetAt  time.Time // when it is forgotten, if its entry was not removed
	orphan    *Orphan   // nil when it was removed, or given up
	task      *Task     // removes the entry; nil like orphan, and for a takeover
}

// Fate is the state of a token's claim, as far as this process knows.
type Fate uint8

const (
	// NotKnown says that the token does not belong to an orphan.
	NotKnown Fate = iota
	// Dead says that the claim has no holder, and that its entry may be removed.
	Dead
	// LostTakeover says that a takeover had no answer, and that the next claim of its key
	// adopts it.
	LostTakeover
)

// Add removes the entry of o, unless its token is known already.
func (c *Cleaner) Add(o *Orphan) {
	wait, doubt := time.Duration(0), o.Flight.Doubt()
	if doubt.InFlight > 0 {
		wait = maxAwaited
		o.waited = doubt.Lost+doubt.Answered == 0 && !o.Answered
	}
	var t *Task
	dropped := false
	c.mu.Lock()
	switch k := c.orphans.byToken[o.Token]; {
	case c.stage == stopped:
	case k == nil:
		t, dropped = c.keepToken(o, wait)
	case k.fate == LostTakeover: // the adopting claim may have renewed it
		k.orphan = o
		c.remember(k)
	}
	c.mu.Unlock()
	if dropped {
		o.Dropped()
	}
	if t != nil && wait > 0 {
		o.Flight.WhenLanded(func() { c.kick(t, false) })
	}
	c.wake()
}

// keepToken keeps the token of o, and starts its removal unless o is a takeover. t is nil if
// there is no removal: o is a takeover, or there are too many removals and all older ones
// are running. c.mu is held.
func (c *Cleaner) keepToken(o *Orphan, wait time.Duration) (t *Task, dropped bool) {
	c.forgetOld(time.Now())
	k := &orphanToken{token: o.Token, fate: Dead, orphan: o}
	c.remember(k)
	c.orphans.push(k)
	if o.Takeover {
		k.fate = LostTakeover
		return nil, false
	}
	dropped = c.removeLater(k, wait)
	return k.task, dropped
}

// remember keeps k for as long as an entry of it can be in the store. c.mu is held.
func (c *Cleaner) remember(k *orphanToken) {
	k.examineAt = c.entryMayExistUntil(k.orphan)
	k.forgetAt = k.examineAt.Add(k.orphan.Linger)
}

// removeLater starts the removal of k, and reports whether it gave up the oldest one for
// it. c.mu is held.
func (c *Cleaner) removeLater(k *orphanToken, wait time.Duration) (dropped bool) {
	o := k.orphan
	k.task = &Task{
		in:      &c.removals,
		Subject: o.Subject,
		Attempt: func(closing bool) Progress {
			p := c.remove(o, closing)
			if p.Done {
				c.removed(k)
			}
			return p
		},
	}
	c.orphans.removing++
	c.enqueue(k.task, wait)
	if c.orphans.removing <= maxOrphans {
		return false
	}
	for ; c.orphans.first < len(c.orphans.queue); c.orphans.first++ {
		if oldest := c.orphans.queue[c.orphans.first]; c.giveUpRemoval(oldest) {
			c.dropped.Add(1)
			return true
		}
	}
	return false
}

// giveUpRemoval gives up the removal of k, and reports false if there is none or it runs at the
// moment. c.mu is held.
func (c *Cleaner) giveUpRemoval(k *orphanToken) bool {
	if k.task == nil || k.runs() {
		return false
	}
	c.removals.Drop(k.task)
	c.forget(k.task)
	c.orphans.done(k)
	return true
}

// runs reports whether the removal calls the store at the moment.
func (k *orphanToken) runs() bool { return k.task != nil && !k.task.Queued() }

func (c *Cleaner) removed(k *orphanToken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orphans.done(k)
	k.forgetAt = k.examineAt
}

func (o *orphans) push(k *orphanToken) {
	if o.byToken == nil {
		o.byToken = make(map[string]*orphanToken)
	}
	o.byToken[k.token] = k
	o.queue = append(o.queue, k)
}

// done ends the removal of k, and keeps its token.
func (o *orphans) done(k *orphanToken) {
	if k.task != nil {
		o.removing--
	}
	k.orphan, k.task = nil, nil
}

// forgetOld forgets the tokens whose entries can no longer be in the store, and the oldest
// if there are too many. c.mu is held.
func (c *Cleaner) forgetOld(now time.Time) {
	o := &c.orphans
	for len(o.queue) > 0 {
		k, tooMany := o.queue[0], len(o.queue) > 2*maxOrphans
		if now.Before(k.examineAt) && !tooMany {
			return
		}
		o.queue[0] = nil
		o.queue, o.first = o.queue[1:], max(o.first-1, 0)
		switch {
		case k.runs():
			k.examineAt = now.Add(longPause)
			o.queue = append(o.queue, k)
		case !tooMany && c.prolong(k, now):
			o.queue = append(o.queue, k)
		default:
			c.giveUpRemoval(k)
			if o.byToken[k.token] == k { // otherwise the takeover was adopted, and its token may be known again
				delete(o.byToken, k.token)
			}
		}
	}
}

// prolong keeps k for longer, and reports false if it can be forgotten.
func (c *Cleaner) prolong(k *orphanToken, now time.Time) bool {
	if k.orphan != nil {
		k.examineAt = c.entryMayExistUntil(k.orphan)
	}
	if !now.Before(k.examineAt) && now.Before(k.forgetAt) { // its removal goes on: other processes are refused for as long
		k.examineAt = now.Add(c.maxLag + c.longestLease())
	}
	return now.Before(k.examineAt)
}

// FateOf returns the fate of token.
func (c *Cleaner) FateOf(token string) Fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.orphans.byToken[token]; k != nil {
		return k.fate
	}
	return NotKnown
}

// Adopted forgets the token of a takeover that has a holder now.
func (c *Cleaner) Adopted(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.orphans.byToken, token)
}
