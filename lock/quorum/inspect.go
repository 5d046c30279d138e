package quorum

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/httplatch/httplatch/lock"
)

// List is part of [lock.Inspector]. It reads the nodes' lists, and asks the quorum about every
// key. An entry of a majority is in every majority of the lists, so a minority may fail.
func (q *Store) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		if err := q.checkInspectors(); err != nil {
			yield(lock.Entry{}, err)
			return
		}
		seen := make(map[string]struct{})
		failed := q.shortage("list")
		for node, store := range q.given {
			err, ok := q.listNode(ctx, store.(lock.Inspector), seen, yield) //nolint:errcheck // all nodes are
			if !ok {
				return
			}
			failed.add(node, err)
		}
		if len(failed.failed) > len(q.given)-q.need {
			yield(lock.Entry{}, failed)
		}
	}
}

// listNode lists the entries of one node that were not seen before. err is the error that ended
// the list early. ok is false if the caller needs no more.
func (q *Store) listNode(ctx context.Context, inspector lock.Inspector, seen map[string]struct{}, yield func(lock.Entry, error) bool) (err error, ok bool) {
	for e, err := range inspector.List(ctx) {
		if err != nil && e.Key == "" {
			return err, true
		}
		if _, known := seen[e.Key]; known {
			continue
		}
		seen[e.Key] = struct{}{}
		key := e.Key // on this node, perhaps of a foreign value
		e, err = q.Get(ctx, key)
		if e.Key = key; (err != nil || e.State != lock.Free) && !yield(e, err) {
			return nil, false
		}
	}
	return nil, true
}

// Page is part of [lock.Inspector]. There are no pages, because the nodes list their keys in
// orders of their own.
func (*Store) Page(context.Context, string, int, func(string) bool) (page []lock.Entry, next string, err error) {
	return nil, "", fmt.Errorf("quorum: entries are listed as a whole: %w", errors.ErrUnsupported)
}

// Forget is part of [lock.Inspector]. An entry that remains on a minority neither grants nor refuses
// the key, for example after a claim that reached a node late. Its removal is reported too.
func (q *Store) Forget(ctx context.Context, key, token string) (ok bool, err error) {
	if err := q.checkInspectors(); err != nil {
		return false, err
	}
	r := askNodes(ctx, q, q.all, nothingLeft, func(ctx context.Context, node int) (bool, error) {
		return q.given[node].(lock.Inspector).Forget(ctx, key, token) //nolint:errcheck // all nodes are
	})
	defer r.done()
	f := q.shortage("forget")
	for {
		a, more := r.next(ctx)
		if !more {
			break
		}
		ok = ok || a.err == nil && a.value
		f.add(a.node, a.err)
	}
	for _, a := range r.silent(ctx) {
		f.add(a.node, a.err)
	}
	r.decide(func(answer[bool]) {})
	if len(f.failed) >= q.need {
		return false, f
	}
	return ok, nil
}

// checkInspectors returns an error if a node lists nothing.
func (q *Store) checkInspectors() error {
	for i, store := range q.given {
		if _, ok := store.(lock.Inspector); !ok {
			return fmt.Errorf("quorum: stores[%d] is no Inspector: %w", i, errors.ErrUnsupported)
		}
	}
	return nil
}
