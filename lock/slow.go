package lock

import "time"

// slowFor is for how long after a call that had no answer in time a store counts
// as slow.
const slowFor = 5 * time.Second

func (c *core) slow() bool {
	until := c.slowUntil.Load()
	return until != 0 && now() < moment(until)
}

func (c *core) foundSlow() { c.slowUntil.Store(int64(now().add(slowFor))) }
