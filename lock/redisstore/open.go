package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	neturl "net/url"
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
// The prefix names the service: two services with one prefix get each other's answers; see [WithPrefix].
// A url is one of
//
//	redis://user:password@host:6379/0
//	rediss://...                                     TLS
//	unix://user:password@/path/to/redis.sock?db=0
//	redis-cluster://user:password@h1:6379,h2:6379    also rediss-cluster
//	redis-sentinel://user:password@h1:26379,h2:26379/master-name/0
//	                                                 also rediss-sentinel; Sentinel's own user and
//	                                                 password are ?sentinel_username=, ?sentinel_password=
//
// [redis.ParseURL] defines the query parameters of every form, such as ?client_name=orders&dial_timeout=200ms.
// Those of the client's pool do not matter. Unless they say otherwise, timeouts are one second and nothing is
// repeated. Contexts are always obeyed, and on Linux TCP_USER_TIMEOUT is 10 s.
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
	s := New(client, opts...)
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

const urlForms = "want redis://[user:password@]host:port[/db], rediss://, unix://[user:password@]/path, " +
	"redis-cluster://[user:password@]h1:p1,h2:p2 or redis-sentinel://[user:password@]h1:p1,h2:p2/master-name[/db]; " +
	"percent-encode all of user and password except letters and digits"

// connect makes the client for a URL. It does not dial. The error never has the password.
func connect(raw string) (redis.UniversalClient, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	authority, behind := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, behind = rest[:i], rest[i:]
	}
	path, query, _ := strings.Cut(behind, "?")
	values, err := neturl.ParseQuery(query)
	// An "@" behind the authority means that it ended too early, at a "/", "?" or "#" of the password. A
	// parameter may have one, but is not quoted then.
	if !found || err != nil || strings.Contains(rest, "#") || strings.Contains(path, "@") {
		return nil, badURL("malformed")
	}
	client, err := newClient(raw, strings.ToLower(scheme), authority, path, values)
	if err == nil {
		return client, nil
	}
	if _, whole := errors.AsType[*neturl.Error](err); whole || strings.Contains(query, "@") { // its text has the whole URL
		return nil, badURL("malformed")
	}
	return nil, badURL(strings.TrimPrefix(err.Error(), "redis: "))
}

func badURL(why string) error { return fmt.Errorf("redisstore.Open: URL: %s; %s", why, urlForms) }

// newClient makes the client for the parts of the URL raw.
func newClient(raw, scheme, authority, path string, values neturl.Values) (redis.UniversalClient, error) {
	u := &redis.UniversalOptions{}
	port := "6379"
	switch scheme {
	case "redis", "rediss", "unix":
		o, err := parseOptions(raw)
		if err != nil {
			return nil, err
		}
		return redis.NewClient(o), nil
	case "redis-cluster", "rediss-cluster":
		if u.IsClusterMode = true; strings.Trim(path, "/") != "" || values.Has("db") {
			return nil, errors.New("a Cluster has one database only, without a number")
		}
	case "redis-sentinel", "rediss-sentinel":
		name, db, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		var err error
		if u.MasterName, err = neturl.PathUnescape(name); err != nil || name == "" {
			return nil, errors.New("no master name")
		}
		port, path = "26379", "/"+db
		u.SentinelUsername, u.SentinelPassword = values.Get("sentinel_username"), values.Get("sentinel_password")
		values.Del("sentinel_username")
		values.Del("sentinel_password")
	default:
		return nil, fmt.Errorf("unknown scheme %q", scheme)
	}
	// Each host is parsed as the URL of one server. The options of the first count for all.
	scheme, _, _ = strings.Cut(scheme, "-")
	at := strings.LastIndex(authority, "@") + 1
	for host := range strings.SplitSeq(authority[at:], ",") {
		if host == "" {
			return nil, errors.New("no host")
		}
		if !strings.Contains(host[strings.LastIndex(host, "]")+1:], ":") {
			host += ":" + port
		}
		o, err := parseOptions(scheme + "://" + authority[:at] + host + path + "?" + values.Encode())
		if err != nil {
			return nil, err
		}
		if u.Addrs = append(u.Addrs, o.Addr); len(u.Addrs) > 1 {
			continue
		}
		u.Username, u.Password, u.DB, u.ClientName, u.Protocol = o.Username, o.Password, o.DB, o.ClientName, o.Protocol
		u.TLSConfig, u.Dialer, u.DialTimeout, u.DialerRetries = o.TLSConfig, o.Dialer, o.DialTimeout, o.DialerRetries
		u.ReadTimeout, u.WriteTimeout, u.PoolTimeout, u.MaxRetries = o.ReadTimeout, o.WriteTimeout, o.PoolTimeout, o.MaxRetries
		u.ContextTimeoutEnabled, u.DisableIdentity, u.MaintNotificationsConfig = o.ContextTimeoutEnabled, o.DisableIdentity, o.MaintNotificationsConfig
	}
	return redis.NewUniversalClient(u), nil
}

// parseOptions parses the URL of one server. It sets the options that a store relies on, and defaults that
// the URL can replace.
func parseOptions(raw string) (*redis.Options, error) {
	o, err := redis.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	// go-redis accepts addresses that cannot be dialed, and databases that no server has.
	host, port, _ := net.SplitHostPort(o.Addr)
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case o.DB < 0:
		return nil, errors.New("invalid database number")
	case o.Network == "unix":
	case err != nil || n == 0:
		return nil, fmt.Errorf("invalid port %q", port)
	case strings.Contains(host, ","):
		return nil, errors.New("one server has one host")
	}
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true // CLIENT SETINFO would need one more permission, and the name identifies the client
	o.ClientName = cmp.Or(o.ClientName, clientName)
	o.DialerRetries, o.MaxRetries = 1, cmp.Or(o.MaxRetries, -1)
	for _, timeout := range [...]*time.Duration{&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout} {
		*timeout = cmp.Or(*timeout, openTimeout)
	}
	o.Dialer = dialer(o.DialTimeout, o.TLSConfig)
	// It would extend the read timeout to ten seconds during maintenance of a server.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o, nil
}

// dialer returns the default dialer of go-redis with the socket option that
// bounds the MaxLag of the store's Description.
func dialer(timeout time.Duration, config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := &net.Dialer{
			Timeout:         timeout,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3},
			Control:         control,
		}
		if config == nil {
			return d.DialContext(ctx, network, addr)
		}
		return (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, network, addr)
	}
}
