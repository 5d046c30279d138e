package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

var errInOrder = fmt.Errorf("redisstore: the keys of a set may be on several servers, and are claimed one after the other: %w", errors.ErrUnsupported)

// ClaimSet is part of [lock.SetClaimer]: one script on all entries. On a Cluster, and under
// [WithoutPluralClaims], it returns errors.ErrUnsupported, and sends nothing. A server or a proxy that
// refuses the script because the entries are in several slots (CROSSSLOT) is not asked again.
func (s *Store) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (inTheWay lock.Entry, err error) {
	if s.nodes.cluster != nil || s.inOrder.Load() {
		return lock.Entry{}, errInOrder
	}
	names, values := make([]any, len(keys)), []any{keepFor(&claims[0])}
	for i := range claims {
		if err := checkToken(&claims[i]); err != nil {
			return lock.Entry{}, err
		}
		name, kept := entry.Name(s.prefix, keys[i])
		names[i], values = name, append(values, entry.Append(nil, &claims[i], kept))
	}
	first, _ := names[0].(string)
	answer, err := s.eval(ctx, &claimSetScript, int64(len(names)), first, append(names[1:], values...)...)
	if failure.ClassOf(err) == "CROSSSLOT" {
		s.inOrder.Store(true)
		if errors.Is(err, lock.ErrNotApplied) {
			return lock.Entry{}, errInOrder
		}
	}
	if err != nil {
		return lock.Entry{}, err
	}
	switch fields, _ := answer.([]any); {
	case len(fields) == 1 && fields[0] == int64(1):
		return lock.Entry{}, nil
	case len(fields) == 4 && fields[0] == int64(0):
		if at, ok := fields[1].(int64); ok && at >= 1 && at <= int64(len(keys)) {
			e, err := entryOf(fields[2:])
			e.Key = keys[at-1]
			return e, err
		}
	}
	return lock.Entry{}, failure.BadAnswer(answer)
}
