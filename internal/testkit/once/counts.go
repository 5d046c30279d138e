package once

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Counts are counted by name. They are safe for concurrent use.
type Counts struct {
	mu sync.Mutex
	n  map[string]int
}

// Add adds one.
func (c *Counts) Add(name string) { c.AddN(name, 1) }

// AddN adds n.
func (c *Counts) AddN(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	if n > 0 {
		c.n[name] += n
	}
}

// Get returns one count.
func (c *Counts) Get(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

// Kinds returns the number of names.
func (c *Counts) Kinds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.n)
}

// Total returns the sum of all counts.
func (c *Counts) Total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.n {
		n += k
	}
	return n
}

// Write writes a line for each count.
func (c *Counts) Write(b *strings.Builder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.n)) {
		fmt.Fprintf(b, "%8d  %s\n", c.n[name], name)
	}
}
