package peer

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// IncidentName is the name of the lock that this library was written after.
const IncidentName = "the incident's policy"

// SetAndExpire is the script by which it claims.
const SetAndExpire = `if redis.call('SETNX', KEYS[1], ARGV[1]) == 1 then
	redis.call('EXPIRE', KEYS[1], ARGV[2])
	return 1
end
return 0`

var setAndExpire = redis.NewScript(SetAndExpire)

// incident is the lock of the incident: a claim without an answer is an error, and no code releases
// the key.
type incident struct {
	client *redis.Client
	lease  time.Duration
	tokens atomic.Int64
}

// OpenIncident opens it. It is no library, and not among All.
func OpenIncident(_ context.Context, t Target) (Locker, error) {
	return &incident{client: NewClient(t), lease: t.lease()}, nil
}

func (i *incident) Acquire(ctx context.Context, key string) (Held, error) {
	token := strconv.FormatInt(i.tokens.Add(1), 10)
	n, err := setAndExpire.Run(ctx, i.client, []string{key}, token, int(i.lease.Seconds())).Int()
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, ErrRefused
	}
	return bareHeld{i.client, key, token}, nil
}

func (i *incident) Close(context.Context) error { return i.client.Close() }
