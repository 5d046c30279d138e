package history_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/once"
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
	wall   time.Time    // the same without its monotonic part
	counts *once.Counts // of all histories of a test
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

func newHistory(c *once.Counts) *history {
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
	store    store
	unknowns atomic.Int64 // outcomes
}

func (w *witness) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	w.h.mu.Lock()
	w.h.claims[c.Token] = c
	w.h.mu.Unlock()
	in := call{
		verb: opClaim, key: key, token: c.Token, replaces: c.Replaces, held: c.ReplacesHeld,
		lease: c.Lease, linger: c.Linger, fenced: c.Fenced, from: w.h.now(),
	}
	e, err := w.store.Claim(ctx, key, c)
	w.note(ctx, in, answer{entry: entryOf(e)}, err)
	w.h.inspect(e)
	return e, err
}

func (w *witness) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	in := call{verb: opRenew, key: key, token: c.Token, lease: c.Lease, linger: c.Linger, from: w.h.now()}
	ok, err := w.store.Renew(ctx, key, c)
	w.note(ctx, in, answer{ok: ok}, err)
	return ok, err
}

func (w *witness) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	in := call{verb: opSettle, key: key, token: c.Token, receipt: string(receipt), lease: keep, from: w.h.now()}
	ok, err := w.store.Settle(ctx, key, c, receipt, keep)
	w.note(ctx, in, answer{ok: ok}, err)
	return ok, err
}

func (w *witness) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	in := call{verb: opRelease, key: key, token: c.Token, from: w.h.now()}
	ok, err := w.store.Release(ctx, key, c)
	w.note(ctx, in, answer{ok: ok}, err)
	return ok, err
}

func (w *witness) Forget(ctx context.Context, key, token string) (bool, error) {
	in := call{verb: opForget, key: key, token: token, from: w.h.now()}
	ok, err := w.store.Forget(ctx, key, token)
	w.note(ctx, in, answer{ok: ok}, err)
	return ok, err
}

func (w *witness) Get(ctx context.Context, key string) (lock.Entry, error) {
	in := call{verb: opGet, key: key, from: w.h.now()}
	e, err := w.store.Get(ctx, key)
	w.note(ctx, in, answer{entry: entryOf(e)}, err)
	w.h.inspect(e)
	return e, err
}

// note records a call that has returned.
func (w *witness) note(ctx context.Context, in call, out answer, err error) {
	returned := w.h.now()
	in.to, out.known = returned, err == nil
	w.h.counts.Add("call: " + in.verb.String())
	switch {
	case err == nil:
	case errors.Is(err, lock.ErrNotApplied):
		w.h.counts.Add("outcome: not applied")
		return // what it did not do is not part of the history
	case in.verb == opGet:
		return // nor an entry that no client saw
	default:
		w.h.counts.Add("outcome: unknown")
		w.unknowns.Add(1)
		out, in.to = answer{}, w.h.deadlineOf(ctx, in)
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
