package lock

import (
	"context"
	"fmt"
	"slices"
)

// tally is what nodes have answered so far: an entry, or an error.
type tally struct {
	need    int // for a majority
	answers []answer[Entry]
}

// majority returns what a majority of the nodes agrees on: that one token has the
// key, or that it is free.
func (t *tally) majority() (e Entry, ok bool) {
	e, size := t.largest()
	if size >= t.need {
		return e, true
	}
	return Entry{}, t.count(func(e *Entry) bool { return e.State == Free }) >= t.need
}

// largest returns the entry of the token that most nodes have.
func (t *tally) largest() (e Entry, size int) {
	for i := range t.answers {
		a := &t.answers[i]
		if a.err != nil || a.value.State == Free {
			continue
		}
		if n := t.count(func(other *Entry) bool { return other.State != Free && other.Token == a.value.Token }); n > size {
			e, size = t.of(a.value.Token), n
		}
	}
	return e, size
}

// of returns the entry of token. One that a node has as a cool-down is ending
// everywhere.
func (t *tally) of(token string) (e Entry) {
	for i := range t.answers {
		a := &t.answers[i]
		if a.err != nil || a.value.State == Free || a.value.Token != token {
			continue
		}
		if v := &a.value; v.State > e.State || v.State == e.State && v.Left > e.Left {
			e = *v
		}
	}
	return e
}

func (t *tally) count(what func(*Entry) bool) (n int) {
	for i := range t.answers {
		if a := &t.answers[i]; a.err == nil && what(&a.value) {
			n++
		}
	}
	return n
}

// answered reports whether as many nodes as make a majority have answered.
func (t *tally) answered() bool { return t.count(func(*Entry) bool { return true }) >= t.need }

// Get is part of [Store]. Where no majority agrees, a claim is on its way, and the
// entry of that is returned.
func (q *quorum) Get(ctx context.Context, key string) (Entry, error) {
	if err := notMade(ctx); err != nil {
		return Entry{}, err
	}
	r := askNodes(ctx, q, q.all, nothingLeft, func(ctx context.Context, node Store) (Entry, error) { return node.Get(ctx, key) })
	defer r.done()
	t := tally{need: q.need}
	for {
		a, ok := r.next(ctx)
		if !ok {
			break
		}
		t.answers = append(t.answers, a)
		if e, ok := t.majority(); ok {
			r.decide(func(answer[Entry]) {})
			return e, nil
		}
	}
	t.answers = append(t.answers, r.decide(func(answer[Entry]) {})...)
	silent := r.silent(ctx)
	if t.answered() && (ctx.Err() == nil || len(silent) == 0) {
		e, _ := t.largest()
		return e, nil
	}
	f := q.shortage("get")
	f.certain, f.cause = true, context.Cause(ctx)
	for _, a := range slices.Concat(t.answers, silent) {
		f.add(a.node, a.err)
	}
	return Entry{}, f
}

// notMade returns the error of a call whose context has ended, and which is not made.
func notMade(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrNotApplied, context.Cause(ctx))
	}
	return nil
}
