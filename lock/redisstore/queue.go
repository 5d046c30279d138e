package redisstore

import "time"

// queue has the commands that wait for a worker, in the order in which they
// came. Any of them can be taken out, so that what was given up is not kept.
type queue struct {
	first, last *command
	len         int
	soonest     time.Time // no deadline is earlier; zero only if there is none
}

func (q *queue) push(c *command) { q.insert(c, q.last, nil) }

// pushFirst is push for one that has waited before.
func (q *queue) pushFirst(c *command) { q.insert(c, nil, q.first) }

// insert puts c between two neighbors; nil is beyond an end.
func (q *queue) insert(c, prev, next *command) {
	s := c.seat
	s.queued, s.prev, s.next = true, prev, next
	if prev == nil {
		q.first = c
	} else {
		prev.seat.next = c
	}
	if next == nil {
		q.last = c
	} else {
		next.seat.prev = c
	}
	q.len++
	if q.soonest.IsZero() || !s.deadline.IsZero() && s.deadline.Before(q.soonest) {
		q.soonest = s.deadline
	}
}

// expired takes out what nobody waits for any more.
func (q *queue) expired(now time.Time) []*command {
	if q.soonest.IsZero() || now.Before(q.soonest) {
		return nil
	}
	var expired []*command
	q.soonest = time.Time{}
	for c := q.first; c != nil; {
		next, deadline := c.seat.next, c.seat.deadline
		switch {
		case deadline.IsZero():
		case !now.Before(deadline):
			q.remove(c)
			expired = append(expired, c)
		case q.soonest.IsZero() || deadline.Before(q.soonest):
			q.soonest = deadline
		}
		c = next
	}
	return expired
}

// pop returns nil if there is none.
func (q *queue) pop() *command {
	c := q.first
	if c != nil {
		q.remove(c)
	}
	return c
}

func (q *queue) remove(c *command) {
	s := c.seat
	if s.prev == nil {
		q.first = s.next
	} else {
		s.prev.seat.next = s.next
	}
	if s.next == nil {
		q.last = s.prev
	} else {
		s.next.seat.prev = s.prev
	}
	s.queued, s.prev, s.next = false, nil, nil
	q.len--
}
