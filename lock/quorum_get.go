package lock

import (
	"context"
	"slices"
)

// Get is part of [Store]. It hears all nodes, since a single one may have the
// receipt, and reads the key as free only if it is on a majority.
func (q *quorum) Get(ctx context.Context, key string) (Entry, error) {
	if err := q.fit(ctx); err != nil {
		return Entry{}, err
	}
	r := askNodes(ctx, q, q.all, func() {}, func(ctx context.Context, node int) (Entry, error) { return q.nodes[node].Get(ctx, key) })
	defer r.done()
	v := votes{need: q.need, patient: true}
	was := v.rule(false)
	for ; was.kind == pending; was = v.rule(false) {
		a, ok := r.next(ctx)
		if !ok {
			was = v.rule(true)
			break
		}
		v.answers = append(v.answers, a)
	}
	silent := r.silent(ctx)
	r.decide(func(answer[Entry]) {})
	if was.kind != mute && (ctx.Err() == nil || len(silent) == 0) {
		return was.entry, nil
	}
	f := q.shortage("get")
	f.certain, f.cause = true, context.Cause(ctx)
	for _, a := range slices.Concat(v.answers, silent) {
		f.add(a.node, a.err)
	}
	return Entry{}, f
}
