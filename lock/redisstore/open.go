package redisstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// What Open sets unless the URL does. The Locker's own timers are what bounds
// its calls; these bound what is left behind by one that timed out.
const (
	openTimeout = time.Second
	clientName  = "httplatch"
)

// Open connects to the Redis that url names, runs [Store.Check] (unless
// [WithoutCheck] is given), and returns a store that owns the connection: Close
// closes it.
//
//	store, err := redisstore.Open(ctx, url, redisstore.WithPrefix("shop:"))
//
// The prefix names the service: two services on one Redis with the same prefix, or
// both without one, get each other's answers; see [WithPrefix]. A url is one of
//
//	redis://user:password@host:6379/0
//	rediss://...                                     TLS
//	unix://user:password@/path/to/redis.sock?db=0
//	redis-cluster://user:password@h1:6379,h2:6379    also rediss-cluster
//	redis-sentinel://user:password@h1:26379,h2:26379/master-name/0
//	                                                 also rediss-sentinel; Sentinel's own user and
//	                                                 password are ?sentinel_username=, ?sentinel_password=
//
// Query parameters are those of [redis.ParseURL] and its relatives, such as
// ?pool_size=50&read_timeout=200ms. Unless they say otherwise, timeouts are one
// second and nothing is repeated; contexts are always obeyed, and on Linux
// TCP_USER_TIMEOUT is 10 s.
//
// The error says what is wrong and what to do, and never has the password.
func Open(ctx context.Context, url string, opts ...Option) (*Store, error) {
	client, err := connect(url)
	if err != nil {
		return nil, err
	}
	s := newStore(client, true, opts)
	s.maxLag = openLag
	s.close = client.Close
	if s.unchecked {
		return s, nil
	}
	if err := s.Check(ctx); err != nil {
		_ = client.Close()
		return nil, err
	}
	return s, nil
}

// connect makes the client for a URL. It does not dial.
func connect(url string) (redis.UniversalClient, error) {
	t, err := parseTarget(url)
	if err != nil {
		return nil, err
	}
	switch t.form {
	case formCluster:
		o, err := redis.ParseClusterURL(t.rewritten)
		if err != nil {
			return nil, t.refuse(err)
		}
		tuneCluster(o)
		return redis.NewClusterClient(o), nil
	case formSentinel:
		o, err := redis.ParseFailoverURL(t.rewritten)
		if err != nil {
			return nil, t.refuse(err)
		}
		if o.RouteByLatency || o.RouteRandomly || o.ReplicaOnly {
			return nil, t.refuse(errors.New("replicas cannot hold locks"))
		}
		tuneFailover(o)
		return redis.NewFailoverClient(o), nil
	case formSingle: // what is left
	}
	o, err := redis.ParseURL(t.rewritten)
	if err != nil {
		return nil, t.refuse(err)
	}
	tune(o)
	return redis.NewClient(o), nil
}

func tune(o *redis.Options) {
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true // CLIENT SETINFO would be one more permission; the name tells who it is
	o.DialerRetries = 1
	// It stretches the read timeout to ten seconds while a server is maintained.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	setDefaults(&o.MaxRetries, &o.PipelinePoolSize, &o.ClientName, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	o.Dialer = dialer(o.DialTimeout, o.TLSConfig)
}

func tuneCluster(o *redis.ClusterOptions) {
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	setDefault(&o.DialerRetries, 1)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	setDefaults(&o.MaxRetries, &o.PipelinePoolSize, &o.ClientName, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	o.Dialer = dialer(o.DialTimeout, o.TLSConfig)
}

func tuneFailover(o *redis.FailoverOptions) {
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	setDefault(&o.DialerRetries, 1)
	setDefaults(&o.MaxRetries, &o.PipelinePoolSize, &o.ClientName, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	o.Dialer = dialer(o.DialTimeout, o.TLSConfig)
}

// setDefaults sets what a URL can set too, where it has not.
func setDefaults(retries, pool *int, name *string, timeouts ...*time.Duration) {
	setDefault(retries, -1)
	setDefault(pool, maxConnections)
	setDefault(name, clientName)
	for _, t := range timeouts {
		setDefault(t, openTimeout)
	}
}

func setDefault[T comparable](field *T, value T) {
	*field = cmp.Or(*field, value)
}
