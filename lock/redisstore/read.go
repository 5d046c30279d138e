package redisstore

import (
	"context"

	"github.com/httplatch/httplatch/lock"
)

// Get returns the entry of key, read from the master.
func (s *Store) Get(ctx context.Context, key string) (lock.Entry, error) {
	name, _ := s.name(key)
	return s.read(ctx, name)
}

// read is a script because a plain GET may be answered by a replica or from the
// client's cache, and because value and time left have to be of one moment.
func (s *Store) read(ctx context.Context, name string) (lock.Entry, error) {
	answer, err := s.eval(ctx, readScript, &command{name: name, yields: true})
	if err != nil || answer == nil {
		return lock.Entry{}, err
	}
	v, left, err := valueOf(answer)
	if err != nil {
		return lock.Entry{}, err
	}
	return v.entry(left), nil
}

// valueOf takes apart a value and its PTTL, as they come from a script. A value
// that is not ours is left alone, so that nothing was done is certain.
func valueOf(answer any) (v value, left int64, err error) {
	fields, ok := answer.([]any)
	if !ok || len(fields) != 2 {
		return value{}, 0, badAnswer(answer)
	}
	raw, ok := fields[0].(string)
	if !ok {
		return value{}, 0, badAnswer(answer)
	}
	if left, ok = fields[1].(int64); !ok {
		return value{}, 0, badAnswer(answer)
	}
	if v, err = decode(raw); err != nil {
		return value{}, 0, notApplied("value", err)
	}
	return v, left, nil
}
