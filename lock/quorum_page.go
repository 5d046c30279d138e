package lock

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// Page is the optional part of [Inspector]. It goes through the nodes' pages as
// List goes through their lists, and asks the quorum about every key that the
// page is to have. It is not supported if it is not by one of the nodes.
//
// Nothing is remembered between two pages, so what was seen on an earlier node
// is found out by asking that node.
func (q inspectedQuorum) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []Entry, next string, err error) {
	at, err := q.place(cursor)
	if err != nil {
		return nil, "", err
	}
	pager, ok := q.inspectors[at.node].(pager)
	if !ok {
		return nil, "", fmt.Errorf("lock: quorum: stores[%d] lists no pages: %w", at.node, errors.ErrUnsupported)
	}
	found, inner, err := pager.Page(ctx, at.inner, limit, match)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, "", fmt.Errorf("lock: page: %w", context.Cause(ctx))
	case errors.Is(err, errors.ErrUnsupported):
		return nil, "", err
	case err != nil:
		// What a majority has is on the others.
		at.failed |= 1 << at.node
		if n := bits.OnesCount64(at.failed); n > len(q.given)-q.need {
			f := q.shortage("page")
			f.add(at.node, err)
			f.why = fmt.Sprintf("%d of %d nodes did not list what they have", n, f.of)
			return nil, "", f
		}
	}
	for _, e := range found {
		if q.listedBefore(ctx, at, e.Key) {
			continue
		}
		now, err := q.Get(ctx, e.Key)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, "", fmt.Errorf("lock: page: %w", context.Cause(ctx))
		case err != nil:
			now = Entry{} // it is there, and cannot be read
		case now.State == Free:
			continue
		}
		now.Key, now.Receipt = e.Key, nil
		page = append(page, now)
	}
	return page, at.after(inner, len(q.given)), nil
}

// listedBefore reports whether an earlier node has key, and so has listed it.
func (q inspectedQuorum) listedBefore(ctx context.Context, at quorumPlace, key string) bool {
	for earlier := range at.node {
		if at.failed&(1<<earlier) != 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, q.timeout)
		e, err := guardedNode(ctx, q.quorum, earlier, func(ctx context.Context, node Store) (Entry, error) { return node.Get(ctx, key) })
		cancel()
		if err == nil && e.State != Free {
			return true
		}
	}
	return false
}

// pager is the optional part of an [Inspector] that lists in steps.
type pager interface {
	Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []Entry, next string, err error)
}

// quorumPlace is what a cursor of Page says: how far the pages of a node have
// been read, and which nodes before it have failed to list theirs.
type quorumPlace struct {
	node   int
	failed uint64 // a bit each; no quorum has more nodes
	inner  string
}

func (q inspectedQuorum) place(cursor string) (at quorumPlace, err error) {
	if cursor == "" {
		return at, nil
	}
	_, err = fmt.Sscanf(cursor, "%d.%d:", &at.node, &at.failed)
	inner, found := strings.CutPrefix(cursor, at.prefix())
	if err != nil || !found || at.node < 0 || at.node >= len(q.given) {
		return quorumPlace{}, errCursor
	}
	at.inner = inner
	return at, nil
}

func (at quorumPlace) prefix() string { return fmt.Sprintf("%d.%d:", at.node, at.failed) }

// after is the cursor of the page that comes next.
func (at quorumPlace) after(inner string, nodes int) string {
	if inner == "" {
		if at.node++; at.node == nodes {
			return ""
		}
	}
	return at.prefix() + inner
}
