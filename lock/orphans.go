package lock

import (
	"time"

	"github.com/httplatch/httplatch/lock/event"
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
	fate     fate
	until    time.Time // when it is looked at again
	forgotIn time.Time // when it is forgotten, if it was not removed
	orphan   *orphan   // nil when it was removed, or given up
	task     *task     // that removes it; nil like orphan, and for a takeover
}

// fate is what this process knows of the claim that a token is of.
type fate uint8

const (
	notKnown     fate = iota
	dead              // its entry may be removed
	lostTakeover      // it got no answer, and is to be gone on with: see Locker.adopt
)

// add has o removed, unless it is known already.
func (c *cleaner) add(o *orphan) {
	wait, doubt := time.Duration(0), o.flight.Doubt()
	if doubt.InFlight > 0 {
		wait = maxAwaited
		o.waited = doubt.Lost+doubt.Answered == 0 && !o.answered
	}
	var t *task
	dropped := false
	c.mu.Lock()
	switch k := c.orphans.byToken[o.token]; {
	case c.stage == stopped:
	case k == nil:
		t, dropped = c.learn(o, wait)
	case k.fate == lostTakeover: // what was to go on with it may have renewed it
		k.orphan = o
		c.remember(k)
	}
	c.mu.Unlock()
	if dropped {
		o.locker.logDropped(o.ctx)
	}
	if t != nil && wait > 0 {
		o.flight.WhenLanded(func() { c.kick(t, false) })
	}
	c.wake()
}

// learn has o known, and removed if it may be. t is nil if it is not: it can be the one
// that was given up itself, if those before it are running. c.mu is held.
func (c *cleaner) learn(o *orphan, wait time.Duration) (t *task, dropped bool) {
	c.forgetOld(time.Now())
	k := &known{token: o.token, fate: dead, orphan: o}
	c.remember(k)
	c.orphans.push(k)
	if o.takeover {
		k.fate = lostTakeover
		return nil, false
	}
	dropped = c.removeLater(k, wait)
	return k.task, dropped
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
	k.task = &task{
		in: &c.removals,
		of: Cleanup{Key: o.event.Key, Entry: o.key, Token: o.token, Owner: o.owner, Kind: event.Reaped},
		attempt: func(closing bool) progress {
			p := o.remove(closing)
			if p.done {
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
	if k.task == nil || k.runs() {
		return false
	}
	c.removals.Drop(k.task)
	c.forget(k.task)
	c.orphans.done(k)
	return true
}

// runs reports whether its removal talks to the store just now.
func (k *known) runs() bool { return k.task != nil && !k.task.Queued() }

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

// forgetOld forgets the tokens of which no entry can still be in the store, and
// those that are too many. c.mu is held.
func (c *cleaner) forgetOld(now time.Time) {
	o := &c.orphans
	for len(o.queue) > 0 {
		k, tooMany := o.queue[0], len(o.queue) > 2*maxOrphans
		if now.Before(k.until) && !tooMany {
			return
		}
		o.queue[0] = nil
		o.queue, o.first = o.queue[1:], max(o.first-1, 0)
		switch {
		case k.runs():
			k.until = now.Add(longPause)
			o.queue = append(o.queue, k)
		case !tooMany && c.prolong(k, now):
			o.queue = append(o.queue, k)
		default:
			c.giveUp(k)
			if o.byToken[k.token] == k { // else it was adopted, and may be known anew
				delete(o.byToken, k.token)
			}
		}
	}
}

// prolong has k looked at again later, and reports false if it is to be forgotten.
func (c *cleaner) prolong(k *known, now time.Time) bool {
	if k.orphan != nil {
		k.until = k.orphan.endures(c.longestLease())
	}
	if !now.Before(k.until) && now.Before(k.forgotIn) { // its removal goes on: other processes are refused for as long
		k.until = now.Add(c.core.maxLag + c.longestLease())
	}
	return now.Before(k.until)
}

// fateOf returns what is known of token.
func (c *cleaner) fateOf(token string) fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.orphans.byToken[token]; k != nil {
		return k.fate
	}
	return notKnown
}

// adopted forgets a takeover that has a holder now.
func (c *cleaner) adopted(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.orphans.byToken, token)
}

func (c *cleaner) longestLease() time.Duration { return time.Duration(c.core.lease.Load()) }
