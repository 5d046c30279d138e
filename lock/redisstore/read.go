package redisstore

import (
	"context"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// Get returns the entry of key, read from the master.
func (s *Store) Get(ctx context.Context, key string) (lock.Entry, error) {
	name, _ := entry.Name(s.prefix, key)
	return s.read(ctx, name)
}

// read runs a script, because a replica or the client's cache may answer a plain GET, and because
// the value and its time left must be read at the same moment.
func (s *Store) read(ctx context.Context, name string) (lock.Entry, error) {
	answer, err := s.eval(ctx, &readScript, 1, name)
	if err != nil || answer == nil {
		return lock.Entry{}, err
	}
	return entryOf(answer)
}

// entryOf reads a value and its PTTL from the answer of a script. For a foreign value, the
// error says not applied: a script leaves such a value alone.
func entryOf(answer any) (lock.Entry, error) {
	fields, _ := answer.([]any)
	if len(fields) != 2 {
		return lock.Entry{}, failure.BadAnswer(answer)
	}
	raw, isText := fields[0].(string)
	left, isTime := fields[1].(int64)
	if !isText || !isTime {
		return lock.Entry{}, failure.BadAnswer(answer)
	}
	v, err := entry.Decode(raw)
	if err != nil {
		return lock.Entry{}, failure.NotApplied("value", err)
	}
	return v.Entry(left), nil
}
