package history_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/httplatch/httplatch/lock"
)

// illegalError is a key for whose operations there is no order.
type illegalError struct {
	key        string
	operations int
	picture    string // the file of it
}

func (e *illegalError) Error() string {
	return fmt.Sprintf("not linearizable: %d operations on %q; see %s", e.operations, e.key, e.picture)
}

// model is that of the store, on the clocks of h.
func (h *history) model() porcupine.Model { return rules{h.slack()}.model() }

// oddities are an error if there were any.
func (h *history) oddities() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.odd) == 0 {
		return nil
	}
	return fmt.Errorf("%d answers that no order explains, such as: %s", len(h.odd), h.odd[0])
}

// partitions are the operations by key.
func (h *history) partitions() map[string][]porcupine.Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	end, slack := h.now(), h.slack()
	keys := map[string][]porcupine.Operation{}
	add := func(r record) {
		if !r.out.known {
			r.in.to = later(r.in.to, slack) // a deadline that is judged by the server's clock
			r.returned = end + 1
		}
		keys[r.in.key] = append(keys[r.in.key], porcupine.Operation{
			ClientId: r.client, Input: r.in, Output: r.out, Call: r.in.from, Return: r.returned,
		})
	}
	for _, r := range h.records {
		if r.in.verb == opClaim && r.in.replaces == "" && r.out.known && r.out.entry.state == lock.Free {
			// Something was in its way, and had ended when the store looked what it
			// was. The claim did nothing, but found both.
			found, free := r, r
			found.in.verb, free.in.verb = opFound, opGet
			add(found)
			r = free
		}
		add(r)
	}
	for key := range keys {
		last := call{verb: opEnd, key: key, from: end, to: end}
		keys[key] = append(keys[key], porcupine.Operation{Input: last, Output: answer{}, Call: end, Return: end})
	}
	return keys
}

// judge looks for an order.
type judge struct {
	patience time.Duration // for one key; most take a millisecond
	pictures string        // what the names of files with pictures begin with
}

// check checks one key after the other. No verdict on one of them is no good
// verdict on all.
func (j judge) check(m porcupine.Model, keys map[string][]porcupine.Operation) error {
	var open error
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		switch porcupine.CheckOperationsTimeout(m, keys[key], j.patience) {
		case porcupine.Ok:
		case porcupine.Unknown:
			open = fmt.Errorf("no verdict within %v on %d operations on %q", j.patience, len(keys[key]), key)
		case porcupine.Illegal:
			return &illegalError{key, len(keys[key]), j.draw(m, key, keys[key])}
		}
	}
	return open
}

// draw returns the file with a picture of the longest orders that there are.
func (j judge) draw(m porcupine.Model, key string, ops []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(m, inRows(ops), j.patience/5)
	file := j.pictures + "-" + lettersOf(key) + ".html"
	if err := porcupine.VisualizePath(m, info, file); err != nil {
		return err.Error()
	}
	return file
}

// inRows gives each operation a row in which it does not overlap with others,
// as those do of a client that has not waited for an answer.
func inRows(ops []porcupine.Operation) []porcupine.Operation {
	ops = slices.SortedFunc(slices.Values(ops), func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var free []int64 // from when each row is
	for i, op := range ops {
		row := slices.IndexFunc(free, func(from int64) bool { return from < op.Call })
		if row < 0 {
			row = len(free)
			free = append(free, 0)
		}
		ops[i].ClientId, free[row] = row, op.Return
	}
	return ops
}

func lettersOf(key string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, key)
}

// gallery is the directory for pictures of what should not have been.
func gallery(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("TEST_ARTIFACTS"); dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	return os.TempDir() // not t.TempDir: they are looked at when the test is over
}
