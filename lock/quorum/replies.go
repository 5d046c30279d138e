package quorum

import (
	"context"
	"fmt"
	"slices"

	"github.com/httplatch/httplatch/lock"
)

// replies are the answers of nodes so far: entries and errors.
type replies struct {
	need    int // for a majority
	answers []answer[lock.Entry]
}

// majority returns the entry on which a majority of the nodes agrees: one token has the key, or
// it is free.
func (r *replies) majority() (e lock.Entry, ok bool) {
	e, size := r.largest()
	if size >= r.need {
		return e, true
	}
	return lock.Entry{}, r.count(func(e *lock.Entry) bool { return e.State == lock.Free }) >= r.need
}

// largest returns the entry of the token with the most nodes.
func (r *replies) largest() (e lock.Entry, size int) {
	for i := range r.answers {
		a := &r.answers[i]
		if a.err != nil || a.value.State == lock.Free {
			continue
		}
		if n := r.count(func(other *lock.Entry) bool { return other.State != lock.Free && other.Token == a.value.Token }); n > size {
			e, size = r.of(a.value.Token), n
		}
	}
	return e, size
}

// of returns the entry of token. If one node has it as a cool-down, the other nodes are about to
// have it as a cool-down too.
func (r *replies) of(token string) (e lock.Entry) {
	for i := range r.answers {
		a := &r.answers[i]
		if a.err != nil || a.value.State == lock.Free || a.value.Token != token {
			continue
		}
		if v := &a.value; v.State > e.State || v.State == e.State && v.Left > e.Left {
			e = *v
		}
	}
	return e
}

func (r *replies) count(what func(*lock.Entry) bool) (n int) {
	for i := range r.answers {
		if a := &r.answers[i]; a.err == nil && what(&a.value) {
			n++
		}
	}
	return n
}

// answered reports whether a majority of the nodes has answered.
func (r *replies) answered() bool { return r.count(func(*lock.Entry) bool { return true }) >= r.need }

// Get is part of [lock.Store]. If no majority agrees, a claim is in flight, and Get returns the
// entry of this claim.
func (q *Store) Get(ctx context.Context, key string) (lock.Entry, error) {
	if err := notMade(ctx); err != nil {
		return lock.Entry{}, err
	}
	r := askNodes(ctx, q, q.all, nothingLeft, func(ctx context.Context, node int) (lock.Entry, error) { return q.given[node].Get(ctx, key) })
	defer r.done()
	got := replies{need: q.need}
	for {
		a, ok := r.next(ctx)
		if !ok {
			break
		}
		got.answers = append(got.answers, a)
		if e, ok := got.majority(); ok {
			r.decide(func(answer[lock.Entry]) {})
			return e, nil
		}
	}
	got.answers = append(got.answers, r.decide(func(answer[lock.Entry]) {})...)
	silent := r.silent(ctx)
	if got.answered() && (ctx.Err() == nil || len(silent) == 0) {
		e, _ := got.largest()
		return e, nil
	}
	f := q.shortage("get")
	f.certain, f.cause = true, context.Cause(ctx)
	for _, a := range slices.Concat(got.answers, silent) {
		f.add(a.node, a.err)
	}
	return lock.Entry{}, f
}

// notMade returns the error of a call that is not made because its context has ended.
func notMade(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", lock.ErrNotApplied, context.Cause(ctx))
	}
	return nil
}
