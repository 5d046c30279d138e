package redisstore

import "time"

// queue has commands in the order in which they came. Any of them can be taken
// out, so that what was given up is not kept.
type queue struct {
	first, last *command
	len         int
	soonest     time.Time // no deadline is earlier; zero: there is none
}

func (q *queue) push(c *command) {
	c.prev, c.next = q.last, nil
	if q.last == nil {
		q.first = c
	} else {
		q.last.next = c
	}
	q.last = c
	q.len++
	q.note(c.deadline)
}

func (q *queue) note(deadline time.Time) {
	if !deadline.IsZero() && (q.soonest.IsZero() || deadline.Before(q.soonest)) {
		q.soonest = deadline
	}
}

func (q *queue) remove(c *command) {
	if c.prev == nil {
		q.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		q.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
	q.len--
}

// expired takes out the commands whose deadlines have passed.
func (q *queue) expired(now time.Time) (expired []*command) {
	if q.soonest.IsZero() || now.Before(q.soonest) {
		return nil
	}
	q.soonest = time.Time{}
	for c := q.first; c != nil; {
		next := c.next
		if c.overdue(now) {
			q.remove(c)
			expired = append(expired, c)
		} else {
			q.note(c.deadline)
		}
		c = next
	}
	return expired
}
