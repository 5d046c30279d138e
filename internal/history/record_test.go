package history_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// store is a store whose calls histories record.
type store interface {
	lock.Store
	Forget(ctx context.Context, key, token string) (bool, error)
}

// history records what clients ask and are answered. It is safe for concurrent
// use.
type history struct {
	began  time.Time
	wall   time.Time // the same without its monotonic part
	counts *counts
	// deadlines are those of fenced claims, if the server refuses them afterwards.
	deadlines bool

	mu      sync.Mutex
	records []record
	claims  map[string]lock.Claim // by token
	odd     []string              // answers that no order can explain
}

// record is one operation.
type record struct {
	client   int
	in       call
	out      answer
	returned int64
}

func newHistory(c *counts) *history {
	now := time.Now()
	return &history{began: now, wall: now.Round(0), counts: c, claims: map[string]lock.Claim{}}
}

// now is the time of the history.
func (h *history) now() int64 { return int64(time.Since(h.began)) }

// slack returns by how much the server's clock and the history's may differ in a duration:
// clockSlack, and the time by which the clock was set meanwhile.
func (h *history) slack() time.Duration {
	now := time.Now()
	return clockSlack + (now.Round(0).Sub(h.wall) - now.Sub(h.began)).Abs()
}

// witness is a store that writes down what one client does with it.
type witness struct {
	h        *history
	client   int
	via      atomic.Pointer[store]
	unknowns atomic.Int64 // outcomes
}

func newWitness(h *history, client int, s store) *witness {
	w := &witness{h: h, client: client}
	w.reroute(s)
	return w
}

// reroute has later calls go another way to the same server.
func (w *witness) reroute(s store) { w.via.Store(&s) }

func (w *witness) store() store { return *w.via.Load() }

func (w *witness) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	w.h.announce(c)
	in := call{
		verb: opClaim, key: key, token: c.Token, replaces: c.Replaces, held: c.ReplacesHeld,
		lease: c.Lease, linger: c.Linger, fenced: c.Fenced, from: w.h.now(),
	}
	e, err := w.store().Claim(ctx, key, c)
	w.note(ctx, in, answer{entry: entryOf(e)}, err)
	w.h.inspect(e)
	return e, err
}

func (w *witness) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	in := call{verb: opRenew, key: key, token: c.Token, lease: c.Lease, linger: c.Linger, from: w.h.now()}
	ok, err := w.store().Renew(ctx, key, c)
	w.note(ctx, in, answer{ok: ok}, err)
	return ok, err
}

func (w *witness) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	in := call{verb: opSettle, key: key, token: c.Token, receipt: string(receipt), lease: keep, from: w.h.now()}
	ok, err := w.store().Settle(ctx, key, c, receipt, keep)
	w.note(ctx, in, answer{ok: ok}, err)
	return ok, err
}

func (w *witness) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	in := call{verb: opRelease, key: key, token: c.Token, from: w.h.now()}
	ok, err := w.store().Release(ctx, key, c)
	w.note(ctx, in, answer{ok: ok}, err)
	return ok, err
}

func (w *witness) Forget(ctx context.Context, key, token string) (bool, error) {
	in := call{verb: opForget, key: key, token: token, from: w.h.now()}
	ok, err := w.store().Forget(ctx, key, token)
	w.note(ctx, in, answer{ok: ok}, err)
	return ok, err
}

func (w *witness) Get(ctx context.Context, key string) (lock.Entry, error) {
	in := call{verb: opGet, key: key, from: w.h.now()}
	e, err := w.store().Get(ctx, key)
	w.note(ctx, in, answer{entry: entryOf(e)}, err)
	w.h.inspect(e)
	return e, err
}

// note records a call that has returned.
func (w *witness) note(ctx context.Context, in call, out answer, err error) {
	w.write(ctx, in, out, err)
	if in.verb != opGet {
		w.countUnknown(err)
	}
}

// countUnknown counts a call that may have taken effect.
func (w *witness) countUnknown(err error) {
	if err != nil && !errors.Is(err, lock.ErrNotApplied) {
		w.unknowns.Add(1)
	}
}

// write adds an operation to the history.
func (w *witness) write(ctx context.Context, in call, out answer, err error) {
	returned := w.h.now()
	in.to, out.known = returned, err == nil
	if err != nil {
		out = answer{}
		in.to = w.h.deadlineOf(ctx, in)
	}
	w.h.counts.operation(in.verb, err)
	switch {
	case errors.Is(err, lock.ErrNotApplied):
		return // what it did not do is not part of the history
	case err != nil && in.verb == opGet:
		return // nor an entry that no client saw
	}
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.h.records = append(w.h.records, record{w.client, in, out, returned})
}

// deadlineOf is the latest moment at which a call of unknown outcome can take
// effect.
func (h *history) deadlineOf(ctx context.Context, in call) int64 {
	deadline, guarded := ctx.Deadline()
	if in.verb != opClaim || !in.fenced || !guarded || !h.deadlines {
		return never
	}
	return max(int64(deadline.Sub(h.began)), in.from)
}

// announce says that a token is about to be claimed.
func (h *history) announce(c lock.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims[c.Token] = c
}

// inspect checks the parts of an entry that are as they were claimed whatever
// has happened meanwhile.
func (h *history) inspect(e lock.Entry) {
	if e.State == lock.Free {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ok := h.claims[e.Token]
	switch {
	case !ok:
		h.odd = append(h.odd, fmt.Sprintf("%q was never claimed", e.Token))
	case e.Owner != c.Owner, e.Attempt != c.Attempt, !bytes.Equal(e.Fingerprint, c.Fingerprint):
		h.odd = append(h.odd, fmt.Sprintf("%+v is not what was claimed: %+v", e, c))
	}
}

// size returns the number of operations to check.
func (h *history) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.records)
}

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
