package lock

import "time"

// WithCheckEvery sets how often the store is checked: a test with a real server has no
// virtual time.
func WithCheckEvery(d time.Duration) Option {
	return option(func(c *config) { c.checkEvery = d })
}
