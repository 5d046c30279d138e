package lock

import (
	"context"
	"iter"
)

// inspectedQuorum is a quorum over stores that are all an [Inspector].
type inspectedQuorum struct {
	*quorum
	inspectors []Inspector
}

// List is part of [Inspector]. It goes through the nodes' lists, and asks the
// quorum about every key it finds. What a majority has is on any majority of the
// lists, so a minority of them may fail.
func (q inspectedQuorum) List(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		seen := make(map[string]struct{})
		failed := q.shortage("list")
		for node, inspector := range q.inspectors {
			err, ok := q.listNode(ctx, inspector, seen, yield)
			if !ok {
				return
			}
			failed.add(node, err)
		}
		if len(failed.failed) > len(q.given)-q.need {
			yield(Entry{}, failed)
		}
	}
}

// listNode lists what is on one node and was not seen before. err is why the list
// ended early; ok is false if the caller has enough.
func (q inspectedQuorum) listNode(ctx context.Context, inspector Inspector, seen map[string]struct{}, yield func(Entry, error) bool) (err error, ok bool) {
	for e, err := range inspector.List(ctx) {
		if err != nil && e.Key == "" {
			return err, true
		}
		if _, known := seen[e.Key]; known {
			continue
		}
		seen[e.Key] = struct{}{}
		if err == nil { // else it is of this entry only
			key := e.Key
			e, err = q.Get(ctx, key)
			e.Key = key
		}
		if (err != nil || e.State != Free) && !yield(e, err) {
			return nil, false
		}
	}
	return nil, true
}

// Forget is part of [Inspector]. What a minority still has of it gives no one the
// key and keeps no one from it.
func (q inspectedQuorum) Forget(ctx context.Context, key, token string) (ok bool, err error) {
	r := askNodes(ctx, q.quorum, q.all, nothingLeft, func(ctx context.Context, node Store) (bool, error) {
		return node.(Inspector).Forget(ctx, key, token) //nolint:errcheck // all nodes are
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
