package redisstore

import (
	"context"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// Get returns the entry of key, read from the master.
func (s *Store) Get(ctx context.Context, key string) (lock.Entry, error) {
	name, _ := entry.Name(s.prefix, key)
	return s.read(ctx, name)
}

// read runs a script, because a replica or the client's cache may answer a plain GET, and because
// the value and its time left must be read at the same moment.
func (s *Store) read(ctx context.Context, name string) (lock.Entry, error) {
	answer, err := s.eval(ctx, readScript, &wire.Command{EntryName: name, Yields: true})
	if err != nil || answer == nil {
		return lock.Entry{}, err
	}
	v, left, err := valueOf(answer)
	if err != nil {
		return lock.Entry{}, err
	}
	return v.Entry(left), nil
}

// valueOf reads a value and its PTTL from the answer of a script. For a foreign value, the
// error says not applied: a script leaves such a value alone.
func valueOf(answer any) (v entry.Value, left int64, err error) {
	fields, ok := answer.([]any)
	if !ok || len(fields) != 2 {
		return entry.Value{}, 0, failure.BadAnswer(answer)
	}
	raw, ok := fields[0].(string)
	if !ok {
		return entry.Value{}, 0, failure.BadAnswer(answer)
	}
	if left, ok = fields[1].(int64); !ok {
		return entry.Value{}, 0, failure.BadAnswer(answer)
	}
	if v, err = entry.Decode(raw); err != nil {
		return entry.Value{}, 0, failure.NotApplied("value", err)
	}
	return v, left, nil
}
