package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// Set is several keys that this process holds as one: all of them, or none. It is a lease on
// each of its keys, with one context and one end. Its methods are safe for concurrent use, and
// safe on nil.
//
// A set is not a [Lease], because it has a fence for each key.
type Set struct {
	keys    []string // sorted
	leases  []*Lease // in the order of keys
	context setContext
}

// DoAll is [Locker.Do] for several keys: it runs fn while this Locker holds all of them, as
// [Locker.AcquireAll] takes them, and releases them together when fn returns, panics or exits
// its goroutine. fn's context ends with the first lease of the set that is lost. [FromContext]
// and [SetFromContext] find the set in it.
func (l *Locker) DoAll(ctx context.Context, keys []string, fn func(ctx context.Context) error) (err error) {
	s, err := l.AcquireAll(ctx, keys)
	if err != nil {
		return err
	}
	defer releaseAfter(ctx, s.Release, &err)
	return fn(s.Context())
}

// AcquireAll takes all of keys or none, for work that ends in another function; prefer
// [Locker.DoAll]. Key order is ignored, and a key that is listed twice counts once.
//
// Keys are claimed one after the other, in the order of their bytes, which is the same for all
// callers. So two callers never wait for each other. If the sets of some callers overlap, and no
// other caller has their keys, at least one of them is granted. This order does not extend over
// nested calls, one set or key inside another: claim all keys in one call.
//
// A store that can claim a set in one call ([SetClaimer]) is asked once for all keys. They are claimed
// one after the other if a claim or a release of one of them is pending in this process, if
// [WithFencing] or [WithFailOpen] is set, or if the caller waits for a holder.
//
// When a key is refused, all keys before it are released. [RefusedError] names the refused key
// in Entry.Key. [WithWait] counts for the whole set: the caller holds its earlier keys while it
// waits for a later one. If it loses one of them meanwhile, AcquireAll ends with an error that matches
// [ErrUnavailable]. Each claim, of all keys or of one, has its own budget, and the errors of
// [Locker.Acquire]. Without any keys, AcquireAll returns an error.
func (l *Locker) AcquireAll(ctx context.Context, keys []string) (*Set, error) {
	keys, err := sortedKeys(keys)
	if err != nil {
		return nil, err
	}
	s := &Set{keys: keys, leases: make([]*Lease, 0, len(keys))}
	if err := l.acquireAll(ctx, s); err != nil {
		_ = s.Release(ctx) // no work has begun
		return nil, err
	}
	return s, nil
}

func sortedKeys(keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, errors.New("lock: no keys")
	}
	for _, key := range keys {
		if err := validKey(key, false); err != nil {
			return nil, err
		}
	}
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	return slices.Compact(sorted), nil
}

// acquireAll takes the keys of s. The context of each lease is derived from the context of the
// lease before it, so the last context ends as soon as any lease is lost.
func (l *Locker) acquireAll(ctx context.Context, s *Set) error {
	of, parent := l, ctx
	if l.cfg.detached {
		// Only the first lease is detached from the caller's context. The context of each
		// other lease is derived from the lease before it.
		cfg := l.cfg
		cfg.detached = false
		of, parent = &Locker{core: l.core, cfg: cfg}, context.WithoutCancel(ctx)
	}
	until := clock.Now().Add(l.cfg.wait)
	done, err := of.claimAtOnce(ctx, parent, s)
	if !done {
		err = of.claimInOrder(ctx, parent, s, until)
	}
	if lost := s.lost(); lost != nil {
		return fmt.Errorf("%w: a lease of the set ended before all its keys were granted: %s", ErrUnavailable, lost.Error())
	}
	if err != nil {
		return err
	}
	s.context = setContext{s.leases[len(s.leases)-1].Context(), s}
	return nil
}

// claimInOrder takes the keys of s, one after the other, until a lease of s ends. Once the store has not served a
// key, and its work may run unprotected, so does the work of all later keys.
func (l *Locker) claimInOrder(ctx, parent context.Context, s *Set, until clock.Moment) error {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	var terms acquireTerms
	for _, key := range s.keys {
		terms.wait = until.Until() // not positive without WithWait, and once that is over
		e := new(Lease).init(ctx, l, key)
		e.set = s.keys
		e.parent = parent //nolint:fatcontext // a set has as many contexts as keys
		if err := l.acquire(ctx, e, terms); err != nil {
			return err
		}
		s.leases = append(s.leases, e)
		if e.local.Unprotected() {
			terms.outage = errSetOutage // the next keys would each wait for the same store
		}
		work := e.Context()
		defer context.AfterFunc(work, func() { leave(context.Cause(work)) })()
		parent = work
	}
	return nil
}

var errSetOutage = fmt.Errorf("%w: it did not serve another key of the set, and was not asked for this one", ErrUnavailable)

// lost returns the loss of the first lease that is over, nil if all are valid.
func (s *Set) lost() error {
	s.checkValidity()
	for _, e := range s.leases {
		if err := e.validity.State().Lost; err != nil {
			return err
		}
	}
	return nil
}

func (s *Set) checkValidity() {
	for _, e := range s.leases {
		e.checkValidity()
	}
}

// Keys returns the keys, sorted. The caller may change the slice.
func (s *Set) Keys() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.keys)
}

// Context returns a context that ends when the set does. When a lease of the set is lost, it ends
// no later than the validity of that lease, with a cause that matches [ErrLost]. Otherwise it
// ends at the release of the set. It is derived from the context given to AcquireAll. If the work
// runs unprotected on one of the keys ([WithFailOpen]), neither [FromContext] nor
// [SetFromContext] finds the set in it.
func (s *Set) Context() context.Context {
	if s == nil {
		return context.Background() //nolint:forbidigo // no set, so it has no end
	}
	return &s.context
}

// Fence returns the fencing token of the lease on key; see [Lease.Fence]. ok is false for a key
// that the set does not have, and for all keys if the work runs unprotected on one of them.
func (s *Set) Fence(key string) (fence int64, ok bool) {
	if s == nil {
		return 0, false
	}
	for _, e := range s.leases {
		if e.Key() == key && !s.unprotected() {
			return e.Fence()
		}
	}
	return 0, false
}

// unprotected reports whether the work runs unprotected on a key, and so on the last one.
func (s *Set) unprotected() bool { return s.leases[len(s.leases)-1].local.Unprotected() }

// Extend is [Lease.Extend] for all leases of the set, at the same time. It returns a loss
// before other errors.
func (s *Set) Extend(ctx context.Context) error {
	if s == nil {
		return fmt.Errorf("%w: there is none", ErrLost)
	}
	return s.each(func(e *Lease) error { return e.Extend(ctx) })
}

// Settle is [Lease.Settle] for all leases of the set, at the same time: each key is refused
// with [ErrSettled] for keep. It returns a loss before other errors. After work that ran
// unprotected on one of the keys, it leaves no receipt on any. It panics if keep is not
// positive.
func (s *Set) Settle(ctx context.Context, receipt []byte, keep time.Duration) error {
	positive("Settle: keep", keep)
	if s == nil {
		return fmt.Errorf("%w: there is none", ErrLost)
	}
	return s.each(func(e *Lease) error {
		if s.unprotected() && !e.local.Unprotected() {
			return e.Release(ctx) // a part of the set protects nothing, so it leaves no receipt
		}
		return e.Settle(ctx, receipt, keep)
	})
}

// Release frees all keys at the same time, and takes at most the budget of one. It has the
// errors of [Lease.Release], and returns a loss before other errors. A key whose release gets no
// answer is freed in the background, as a single key is. The second call, and a call after
// [Set.Settle], do nothing and return nil.
func (s *Set) Release(ctx context.Context) error {
	if s == nil {
		return nil
	}
	return s.each(func(e *Lease) error { return e.Release(ctx) })
}

// each calls end for each lease, and returns the first loss, or else the first error. Over a store outside this process
// the calls are at the same time. Otherwise the last comes first, so that each context ends before its parent.
func (s *Set) each(end func(e *Lease) error) error {
	errs := make([]error, len(s.leases))
	var others sync.WaitGroup
	for i, e := range slices.Backward(s.leases) {
		if i == 0 || e.locker.core.inProcess {
			errs[i] = end(e)
		} else {
			others.Go(func() { errs[i] = end(e) })
		}
	}
	others.Wait()
	var first error
	for _, err := range errs {
		if first == nil || errors.Is(err, ErrLost) && !errors.Is(first, ErrLost) {
			first = err
		}
	}
	return first
}

type setKey struct{}

// SetFromContext returns the set of the innermost [Locker.DoAll] or middleware.LockAll around the
// code that was given ctx. ok is false if there is no such call, or if the store did not serve
// one of its keys and the work runs unprotected ([WithFailOpen]).
func SetFromContext(ctx context.Context) (set *Set, ok bool) {
	set, ok = ctx.Value(setKey{}).(*Set)
	return set, ok
}

// setContext is the context of a set's work: the context of its last lease, with the set as a
// value.
type setContext struct {
	context.Context //nolint:containedctx // it is one

	set *Set
}

// Done and Err check the clock for each lease, as the context of a single lease does: the context
// of the last lease checks only that lease.
func (c *setContext) Done() <-chan struct{} {
	c.set.checkValidity()
	return c.Context.Done()
}

func (c *setContext) Err() error {
	c.set.checkValidity()
	return c.Context.Err()
}

func (c *setContext) Value(key any) any {
	_, ofSet := key.(setKey)
	_, ofLease := key.(leaseKey)
	switch {
	case (ofSet || ofLease) && c.set.unprotected(): // a part of the set protects nothing
		return c.set.leases[0].parent.Value(key)
	case ofSet:
		return c.set
	}
	return c.Context.Value(key)
}

// String keeps code that prints a context from reading the fields of a set in use.
func (c *setContext) String() string { return "lock.Set.Context" }
