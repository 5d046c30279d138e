package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// The names in a set share no hash tag, so on a Cluster the entries are in several slots.
var errSlots = fmt.Errorf("redisstore: the keys of a set are in several slots of the Cluster, and no command changes them at once: %w", errors.ErrUnsupported)

// ClaimSet is part of [lock.SetClaimer]: one script on all entries. On a Cluster it returns
// errors.ErrUnsupported.
func (s *Store) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (inTheWay lock.Entry, err error) {
	names, err := s.namesOf(keys, claims)
	if err != nil {
		return lock.Entry{}, err
	}
	args := []any{keepFor(claims[0])}
	for i, c := range claims {
		_, kept := entry.Name(s.prefix, keys[i])
		v := entry.New(c, kept)
		args = append(args, v.AppendTo(nil))
	}
	answer, err := s.evalAll(ctx, claimSetScript, names, true, args...)
	if err != nil {
		return lock.Entry{}, err
	}
	fields, ok := answer.([]any)
	switch {
	case !ok:
		return lock.Entry{}, failure.BadAnswer(answer)
	case len(fields) == 1 && fields[0] == int64(1):
		return lock.Entry{}, nil
	case len(fields) != 4 || fields[0] != int64(0):
		return lock.Entry{}, failure.BadAnswer(answer)
	}
	at, ok := fields[1].(int64)
	if !ok || at < 1 || at > int64(len(keys)) {
		return lock.Entry{}, failure.BadAnswer(answer)
	}
	there, left, err := valueOf(fields[2:])
	if err != nil {
		return lock.Entry{}, err
	}
	e := there.Entry(left)
	e.Key = keys[at-1]
	return e, nil
}

// ReleaseSet is part of [lock.SetClaimer]: one script on all entries. It works when the server is
// out of memory. On a Cluster it returns errors.ErrUnsupported.
func (s *Store) ReleaseSet(ctx context.Context, keys []string, claims []lock.Claim) (ok []bool, err error) {
	names, err := s.namesOf(keys, claims)
	if err != nil {
		return nil, err
	}
	args := make([]any, len(claims), len(claims)+1)
	for i, c := range claims {
		args[i] = entry.AppendPrefix(nil, entry.Held, c.Token)
	}
	answer, err := s.evalAll(ctx, removeSetScript, names, false, s.published(args...)...)
	if err != nil {
		return nil, err
	}
	fields, is := answer.([]any)
	if !is || len(fields) != len(keys) {
		return nil, failure.BadAnswer(answer)
	}
	ok = make([]bool, len(keys))
	for i, field := range fields {
		if ok[i], err = boolReply(field, nil); err != nil {
			return nil, err
		}
	}
	return ok, nil
}

// namesOf returns the names of the entries of a set.
func (s *Store) namesOf(keys []string, claims []lock.Claim) (names []string, err error) {
	if s.cluster != nil {
		return nil, errSlots
	}
	if bad := slices.IndexFunc(claims, func(c lock.Claim) bool { return len(c.Token) == 0 || len(c.Token) > math.MaxUint8 }); bad >= 0 {
		return nil, failure.NotApplied("argument", fmt.Errorf("a token of %d bytes, not 1 to 255", len(claims[bad].Token)))
	}
	names = make([]string, len(keys))
	for i, key := range keys {
		names[i], _ = entry.Name(s.prefix, key)
	}
	return names, nil
}
