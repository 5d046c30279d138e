package redisstore

import (
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// logOptions says once what Open would set differently.
func (s *Store) logOptions() {
	var o redis.Options
	switch client := s.client.(type) {
	case *redis.Client:
		o = *client.Options()
	case *redis.ClusterClient:
		c := client.Options()
		o = redis.Options{
			DialTimeout:   c.DialTimeout,
			PoolTimeout:   c.PoolTimeout,
			DialerRetries: c.DialerRetries,
		}
	default:
		return
	}
	if advice := advise(&o); len(advice) > 0 {
		slog.Default().Warn("redisstore: calls to Redis can outlast their budget with this client; "+
			"locks stay correct, goroutines and connections are held longer; redisstore.Open sets these itself",
			slog.Group("set", advice...))
	}
}

// advise has the options whose values let a call outlast its caller, and better
// ones.
func advise(o *redis.Options) []any {
	var advice []any
	if o.DialerRetries > 1 {
		advice = append(advice, slog.Int("DialerRetries", 1))
	}
	for _, t := range []struct {
		name string
		is   time.Duration
	}{
		{"DialTimeout", o.DialTimeout},
		{"PoolTimeout", o.PoolTimeout},
	} {
		if t.is <= 0 || t.is > openTimeout {
			advice = append(advice, slog.Duration(t.name, openTimeout))
		}
	}
	return advice
}
