package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Open sets these unless the URL sets them. They bound the connections and goroutines that a
// timed-out call leaves. The Locker's own timers bound the calls themselves.
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
// both without a prefix, get each other's answers; see [WithPrefix]. A url is one of
//
//	redis://user:password@host:6379/0
//	rediss://...                                     TLS
//	unix://user:password@/path/to/redis.sock?db=0
//	redis-cluster://user:password@h1:6379,h2:6379    also rediss-cluster
//	redis-sentinel://user:password@h1:26379,h2:26379/master-name/0
//	                                                 also rediss-sentinel; Sentinel's own user and
//	                                                 password are ?sentinel_username=, ?sentinel_password=
//
// [redis.ParseURL], [redis.ParseClusterURL] and [redis.ParseFailoverURL] define the query
// parameters, such as ?client_name=orders&dial_timeout=200ms. Those of the client's pool do not matter.
// Unless they say otherwise, timeouts are one second and nothing is repeated. Contexts are always
// obeyed, and on Linux TCP_USER_TIMEOUT is 10 s.
//
// The error names the problem and its cure, and never has the password.
//
// go-redis has one log for all clients of a process, on standard error, and writes lines to it that say
// no more than the errors of the calls. So the first Open turns this log off. To have it, call
// [redis.SetLogger] after the first Open.
func Open(ctx context.Context, url string, opts ...Option) (*Store, error) {
	client, err := connect(url)
	if err != nil {
		return nil, err
	}
	silence.Do(logging.Disable)
	s := newStore(client, opts)
	s.maxLag = openLag
	s.close = client.Close
	if s.unchecked {
		return s, nil
	}
	if err := s.Check(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// silence is once for the process, because go-redis' log is, and a program that has set its own
// log keeps it.
var silence sync.Once //nolint:gochecknoglobals // see above

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
		if err := checkAddrs(0, o.Addrs...); err != nil {
			return nil, t.refuse(err)
		}
		(&tuning{
			contexts: &o.ContextTimeoutEnabled, noIdentity: &o.DisableIdentity, name: &o.ClientName,
			dialerRetries: &o.DialerRetries, retries: &o.MaxRetries,
			dial: &o.DialTimeout, read: &o.ReadTimeout, write: &o.WriteTimeout, wait: &o.PoolTimeout,
			tls: o.TLSConfig, dialer: &o.Dialer, maintenance: &o.MaintNotificationsConfig,
		}).set()
		return redis.NewClusterClient(o), nil
	case formSentinel:
		o, err := redis.ParseFailoverURL(t.rewritten)
		if err != nil {
			return nil, t.refuse(err)
		}
		if err := checkAddrs(o.DB, o.SentinelAddrs...); err != nil {
			return nil, t.refuse(err)
		}
		if o.RouteByLatency || o.RouteRandomly || o.ReplicaOnly {
			return nil, t.refuse(errors.New("replicas cannot hold locks"))
		}
		(&tuning{
			contexts: &o.ContextTimeoutEnabled, noIdentity: &o.DisableIdentity, name: &o.ClientName,
			dialerRetries: &o.DialerRetries, retries: &o.MaxRetries,
			dial: &o.DialTimeout, read: &o.ReadTimeout, write: &o.WriteTimeout, wait: &o.PoolTimeout,
			tls: o.TLSConfig, dialer: &o.Dialer,
		}).set()
		return redis.NewFailoverClient(o), nil
	case formSingle: // the remaining form
	}
	o, err := redis.ParseURL(t.rewritten)
	if err == nil && o.Network == "tcp" {
		err = checkAddrs(o.DB, o.Addr)
	}
	if err != nil {
		return nil, t.refuse(err)
	}
	(&tuning{
		contexts: &o.ContextTimeoutEnabled, noIdentity: &o.DisableIdentity, name: &o.ClientName,
		dialerRetries: &o.DialerRetries, retries: &o.MaxRetries,
		dial: &o.DialTimeout, read: &o.ReadTimeout, write: &o.WriteTimeout, wait: &o.PoolTimeout,
		tls: o.TLSConfig, dialer: &o.Dialer, maintenance: &o.MaintNotificationsConfig,
	}).set()
	return redis.NewClient(o), nil
}

// checkAddrs returns an error for addresses that cannot be dialed, and for a database that no server
// has. go-redis accepts them.
func checkAddrs(db int, addrs ...string) error {
	if db < 0 {
		return errors.New("invalid database number")
	}
	for _, addr := range addrs {
		host, port, _ := net.SplitHostPort(addr)
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("invalid port %q", port)
		}
		if strings.Contains(host, ",") {
			return errors.New("one server has one host")
		}
	}
	return nil
}

// tuning points at the settings that every type of options has.
type tuning struct {
	contexts, noIdentity    *bool
	dialerRetries, retries  *int
	name                    *string
	dial, read, write, wait *time.Duration
	tls                     *tls.Config
	dialer                  *dialFunc
	maintenance             **maintnotifications.Config // nil: there is none
}

// set sets the options that a store relies on, and defaults that a URL can replace.
func (t *tuning) set() {
	*t.contexts = true
	*t.noIdentity = true // CLIENT SETINFO would need one more permission, and the name identifies the client
	setDefault(t.dialerRetries, 1)
	setDefault(t.retries, -1)
	setDefault(t.name, clientName)
	for _, timeout := range [...]*time.Duration{t.dial, t.read, t.write, t.wait} {
		setDefault(timeout, openTimeout)
	}
	*t.dialer = dialer(*t.dial, t.tls)
	if t.maintenance != nil { // it would extend the read timeout to ten seconds during maintenance of a server
		*t.maintenance = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
}

func setDefault[T comparable](field *T, value T) {
	*field = cmp.Or(*field, value)
}
