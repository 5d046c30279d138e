package peer

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// NewClient returns the go-redis client that all contenders over go-redis get,
// except go-zero, which makes its own. It is set as redisstore.Open sets it,
// which costs no contender anything: no retries, no identification, contexts
// obeyed.
func NewClient(t Target) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     t.Addr,
		Dialer:                   t.Dial,
		PoolSize:                 t.Pool,
		PipelinePoolSize:         max(32, t.Pool),
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              time.Second,
		ReadTimeout:              time.Second,
		WriteTimeout:             time.Second,
		PoolTimeout:              time.Second,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}
