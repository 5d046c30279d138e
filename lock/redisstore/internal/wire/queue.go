package wire

// queue holds commands in the order of arrival.
type queue struct {
	first, last *Command
	len         int
}

func (q *queue) add(c *Command) {
	c.before = q.last
	if q.last = c; c.before == nil {
		q.first = c
	} else {
		c.before.after = c
	}
	q.len++
}

func (q *queue) remove(c *Command) {
	if c.before == nil {
		q.first = c.after
	} else {
		c.before.after = c.after
	}
	if c.after == nil {
		q.last = c.before
	} else {
		c.after.before = c.before
	}
	c.before, c.after = nil, nil
	q.len--
}
