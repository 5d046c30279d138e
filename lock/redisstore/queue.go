package redisstore

// queue has the commands that wait for a worker, in the order in which they
// came. Any of them can be taken out, so that what was given up is not kept.
type queue struct {
	first, last *command
	len         int
}

func (q *queue) push(c *command) {
	s := c.seat
	s.queued, s.prev = true, q.last
	if q.last == nil {
		q.first = c
	} else {
		q.last.seat.next = c
	}
	q.last = c
	q.len++
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
