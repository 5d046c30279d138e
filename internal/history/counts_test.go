package history_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/httplatch/httplatch/lock"
)

// counts are of all histories of a test. They are safe for concurrent use.
type counts struct {
	mu sync.Mutex
	of map[string]map[string]int // by group
}

func newCounts() *counts { return &counts{of: map[string]map[string]int{}} }

func (c *counts) add(group, name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[group] == nil {
		c.of[group] = map[string]int{}
	}
	c.of[group][name] += n
}

func (c *counts) get(group, name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[group][name]
}

// operation counts one call by its verb and its outcome.
func (c *counts) operation(v verb, err error) {
	c.add("calls", v.String(), 1)
	switch {
	case err == nil:
		c.add("outcomes", "answered", 1)
	case errors.Is(err, lock.ErrNotApplied):
		c.add("outcomes", "not applied", 1)
	default:
		c.add("outcomes", "unknown", 1)
	}
}

// log prints all there is, group by group.
func (c *counts) log(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, group := range slices.Sorted(maps.Keys(c.of)) {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(c.of[group])) {
			parts = append(parts, fmt.Sprintf("%d %s", c.of[group][name], name))
		}
		t.Logf("%s: %s", group, strings.Join(parts, ", "))
	}
}
