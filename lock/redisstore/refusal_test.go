package redisstore_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// operations are all calls of a store, each on an entry of "tok".
var operations = map[string]func(ctx context.Context, s lock.Store, key string) error{
	"claim": func(ctx context.Context, s lock.Store, key string) error {
		_, err := s.Claim(ctx, key, claim("tok"))
		return err
	},
	"fenced claim": func(ctx context.Context, s lock.Store, key string) error {
		c := claim("tok")
		c.Fenced = true
		_, err := s.Claim(ctx, key, c)
		return err
	},
	"takeover": func(ctx context.Context, s lock.Store, key string) error {
		c := claim("tok")
		c.Replaces = "old"
		_, err := s.Claim(ctx, key, c)
		return err
	},
	"renew": func(ctx context.Context, s lock.Store, key string) error {
		_, err := s.Renew(ctx, key, claim("tok"))
		return err
	},
	"settle": func(ctx context.Context, s lock.Store, key string) error {
		_, err := s.Settle(ctx, key, lock.Claim{Token: "tok"}, []byte("receipt"), time.Minute)
		return err
	},
	"release": func(ctx context.Context, s lock.Store, key string) error {
		_, err := s.Release(ctx, key, lock.Claim{Token: "tok"})
		return err
	},
	"get": func(ctx context.Context, s lock.Store, key string) error {
		_, err := s.Get(ctx, key)
		return err
	},
}

func TestReplies(t *testing.T) {
	t.Parallel()
	const data = "set|eval|evalsha"
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	s := overClient(t, p.Addr(), nil)
	key := keyFor(t)

	for _, refusal := range refusals {
		text := refusal.text
		code := refusal.class
		rule := p.On(respproxy.Match{Name: data}, respproxy.ReplyError(text))
		for name, op := range operations {
			err := op(timeout(t, patience), s, key)
			requireNotApplied(t, err, code)
			require.Regexp(t, `^redisstore: `+code+`: [^:]+.*: .+[^.]$`, err.Error(), name)
			require.NotContains(t, err.Error(), code+": "+code)
		}
		rule.Remove()
	}
	for text, want := range map[string]string{
		"ERR The user executing the script can't run this command or subcommand script: 0, on @user_script:1.": "NOPERM",
		"ERR ACL failure in script: User x has no permissions to run the 'set' command script: 0, on 1.":       "NOPERM",
	} {
		rule := p.On(respproxy.Match{Name: data}, respproxy.ReplyError(text))
		requireNotApplied(t, operations["fenced claim"](timeout(t, patience), s, key), want)
		rule.Remove()
	}

	for _, text := range []string{
		"upstream failure", "ERR upstream failure", "ERR", "", "oom", "MOVEDX 1 a", "BUSYKEY Target key name already exists.",
		"ERR max number of clients reached",
		"dial is the server up", "UNKILLABLE Sorry",
	} {
		rule := p.On(respproxy.Match{Name: data}, respproxy.ReplyErrorAfterApply(text))
		for name, op := range operations {
			err := op(timeout(t, patience), s, key)
			require.Error(t, err, name)
			requireUnknown(t, err, "reply")
		}
		rule.Remove()
	}
	require.NoError(t, operations["release"](t.Context(), s, key))
}

func TestRefusalsOfRealServers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		class   string
		store   func(t *testing.T) lock.Store
		allowed string // operations that work all the same
		cure    string
	}{
		"out of memory": {
			class: "OOM", cure: "maxmemory", allowed: "takeover renew settle release get",
			store: func(t *testing.T) lock.Store {
				return overClient(t, redistest.Start(t, "--maxmemory", "1").Addr(), nil)
			},
		},
		"replica": {
			class: "READONLY", cure: "master", allowed: "takeover renew settle release get", // they find no entry to change
			store: func(t *testing.T) lock.Store {
				srv := redistest.Start(t)
				srv.Do(t, "REPLICAOF", "127.0.0.1", redistest.Shared(t).Port())
				return overClient(t, srv.Addr(), nil)
			},
		},
		"orphaned replica": {
			class: "MASTERDOWN|READONLY", cure: "master",
			store: func(t *testing.T) lock.Store {
				srv := redistest.Start(t, "--replica-serve-stale-data", "no")
				srv.Do(t, "REPLICAOF", "127.0.0.1", "1")
				return overClient(t, srv.Addr(), nil)
			},
		},
		"too few replicas": {
			class: "NOREPLICAS", cure: "min-replicas-to-write", allowed: "takeover renew settle release get",
			store: func(t *testing.T) lock.Store {
				return overClient(t, redistest.Start(t, "--min-replicas-to-write", "1").Addr(), nil)
			},
		},
		"disk is gone": {
			class: "MISCONF", cure: "disk", allowed: "takeover renew settle release get",
			store: func(t *testing.T) lock.Store {
				srv := redistest.Start(t)
				srv.Do(t, "CONFIG", "SET", "save", "3600 1")
				require.NoError(t, os.RemoveAll(srv.Dir()))
				srv.Do(t, "BGSAVE")
				require.Eventually(t, func() bool {
					info, _ := srv.Do(t, "INFO", "persistence").(string)
					return strings.Contains(info, "rdb_last_bgsave_status:err")
				}, patience, 5*time.Millisecond)
				return overClient(t, srv.Addr(), nil)
			},
		},
		"cluster without slots": {
			class: "CLUSTERDOWN", cure: "CLUSTER INFO",
			store: func(t *testing.T) lock.Store {
				return overClient(t, redistest.Start(t, "--cluster-enabled", "yes").Addr(), nil)
			},
		},
		"no permission": {
			class: "NOPERM", cure: "+evalsha",
			store: func(t *testing.T) lock.Store {
				srv := redistest.Start(t)
				srv.Do(t, "ACL", "SETUSER", "u", "on", ">p", "~latch:*", "+ping")
				return overClient(t, srv.Addr(), func(o *redis.Options) { o.Username, o.Password = "u", "p" })
			},
		},
		"other keys only": {
			class: "NOPERM", cure: "latch:*",
			store: func(t *testing.T) lock.Store {
				srv := redistest.Start(t)
				srv.Do(t, "ACL", "SETUSER", "u", "on", ">p", "~other:*", "+@all")
				return overClient(t, srv.Addr(), func(o *redis.Options) { o.Username, o.Password = "u", "p" })
			},
		},
		"no password": {
			class: "NOAUTH", cure: "password",
			store: func(t *testing.T) lock.Store {
				return overClient(t, redistest.Start(t, "--requirepass", "secret").Addr(), nil)
			},
		},
		"wrong password": {
			class: "WRONGPASS", cure: "wrong",
			store: func(t *testing.T) lock.Store {
				srv := redistest.Start(t, "--requirepass", "secret")
				return overClient(t, srv.Addr(), func(o *redis.Options) { o.Password = "no" })
			},
		},
		"other type": {
			class: "WRONGTYPE", cure: "WithPrefix",
			store: func(t *testing.T) lock.Store {
				srv := redistest.Start(t)
				srv.Do(t, "LPUSH", "latch:lock:k", "x")
				return overClient(t, srv.Addr(), nil)
			},
		},
		"busy": {
			class: "BUSY", cure: "SCRIPT KILL",
			store: func(t *testing.T) lock.Store {
				srv := redistest.Start(t, "--lua-time-limit", "10")
				client := srv.Client(t)
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = client.Eval(context.Background(), "while true do end", nil).Err()
				}()
				t.Cleanup(func() {
					_ = srv.Client(t).ScriptKill(context.Background()).Err()
					<-done
				})
				require.Eventually(t, func() bool {
					return redis.HasErrorPrefix(client.Ping(t.Context()).Err(), "BUSY")
				}, patience, 5*time.Millisecond)
				return overClient(t, srv.Addr(), nil)
			},
		},
		"refused port": {
			class: "dial", cure: "server up",
			store: func(t *testing.T) lock.Store {
				p := respproxy.Start(t, redistest.Shared(t).Addr())
				p.Down()
				return overClient(t, p.Addr(), func(o *redis.Options) { o.DialerRetries = 1 })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tt.store(t)
			for name, op := range operations {
				err := op(timeout(t, patience), s, "k")
				if strings.Contains(tt.allowed, name) {
					require.NoError(t, err, name)
					continue
				}
				require.Error(t, err, name)
				require.Contains(t, strings.Split(tt.class, "|"), class(err))
				requireNotApplied(t, err, class(err))
				require.ErrorContains(t, err, tt.cure)
			}
		})
	}
}

func TestClusterBehindAPlainClient(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, nil)
	other := cluster.Nodes[0]
	if cluster.Owner(t, "latch:lock:k") == other {
		other = cluster.Nodes[1]
	}
	s := overClient(t, other.Addr(), nil)
	for _, op := range operations {
		err := op(timeout(t, patience), s, "k")
		requireNotApplied(t, err, "MOVED")
		require.ErrorContains(t, err, "redis.NewClusterClient")
	}
	require.ErrorContains(t, s.Check(t.Context()), "redis.NewClusterClient")

	through := redisstore.New(cluster.Client(t))
	for name, op := range operations {
		require.NoError(t, op(timeout(t, patience), through, "k"), name)
	}
	require.NoError(t, through.Check(t.Context()))
}

// The store uses no connection of the client's pool, and ends by itself.
func TestStoreIsApartFromTheClientsPool(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr(), PoolSize: 1, PoolTimeout: 20 * time.Millisecond})
	s := redisstore.New(client)
	conn := client.Conn()
	require.NoError(t, conn.Ping(t.Context()).Err())
	for name, op := range operations {
		require.NoError(t, op(timeout(t, patience), s, keyFor(t)), name)
	}
	require.NoError(t, conn.Close())
	require.NoError(t, client.Close())
	require.NoError(t, s.Close())
	for _, op := range operations {
		requireNotApplied(t, op(t.Context(), s, keyFor(t)), "closed")
	}
}

// A server that is full can still return the holder of a key, and end its
// entry.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, string) *respproxy.Proxy{"as it is": respproxy.Start, "Redis 6.2": respproxy.StartRedis62} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			testOutOfMemory(t, srv, overClient(t, start(t, srv.Addr()).Addr(), nil))
		})
	}
}

func testOutOfMemory(t *testing.T, srv *redistest.Server, s *redisstore.Store) {
	t.Helper()
	ctx := t.Context()
	withFence := fenced("f")
	for _, key := range []string{"renewed", "settled", "released", "held"} {
		take(t, s, key, claim("a"))
	}
	take(t, s, "fenced", withFence)
	srv.Do(t, "CONFIG", "SET", "maxmemory", "1")

	for _, c := range []lock.Claim{claim("b"), withFence} {
		_, err := s.Claim(ctx, "free", c)
		requireNotApplied(t, err, "OOM")
	}
	e, err := s.Claim(ctx, "held", claim("b"))
	require.NoError(t, err)
	require.Equal(t, "a", e.Token, "refusals need no memory")
	e, err = s.Claim(ctx, "held", claim("a"))
	require.NoError(t, err)
	require.Equal(t, lock.Held, e.State, "nor does the recovery of an unanswered claim")

	lingering := claim("a")
	lingering.Linger = time.Hour
	ok, err := s.Renew(ctx, "renewed", lingering)
	require.NoError(t, err)
	require.True(t, ok)
	e, err = s.Get(ctx, "renewed")
	require.NoError(t, err)
	require.Equal(t, lock.Held, e.State)

	ok, err = s.Settle(ctx, "settled", lock.Claim{Token: "a"}, []byte("receipt"), time.Hour)
	require.NoError(t, err)
	require.True(t, ok)
	e, err = s.Claim(ctx, "settled", claim("b"))
	require.NoError(t, err, "replays need no memory")
	require.Equal(t, "receipt", string(e.Receipt))
	require.InDelta(t, time.Hour, e.Left, float64(time.Minute))

	for key, token := range map[string]string{"released": "a", "fenced": "f"} {
		ok, err = s.Release(ctx, key, lock.Claim{Token: token})
		require.NoError(t, err)
		require.True(t, ok)
		e, err = s.Get(ctx, key)
		require.NoError(t, err)
		require.Equal(t, lock.Free, e.State)
	}
}

// Without credentials nothing is sent.
func TestFailedCredentials(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{
		Addr: redistest.Shared(t).Addr(),
		CredentialsProviderContext: func(context.Context) (user, password string, err error) {
			return "", "", errors.New("the vault is sealed")
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	s := redisstore.New(client)
	for name, call := range operations {
		err := call(timeout(t, patience), s, keyFor(t))
		requireNotApplied(t, err, "handshake")
		require.ErrorContains(t, err, "the vault is sealed", name)
	}
}

// A server that cannot write can still return the holder of a key.
func TestClaimsOfTakenKeysAreAnsweredWithoutWrites(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"OOM command not allowed when used memory > 'maxmemory'.", "MISCONF Redis cannot persist to disk.",
		"NOREPLICAS Not enough good replicas to write.",
	} {
		p := respproxy.Start(t, redistest.Shared(t).Addr())
		s := open(t, p.URL())
		key := keyFor(t) + text[:3]
		take(t, s, key, claim("a"))
		p.On(respproxy.Match{Name: "set"}, respproxy.ReplyError(text))
		e, err := s.Claim(timeout(t, patience), key, claim("b"))
		require.NoError(t, err, text)
		require.Equal(t, "a", e.Token)
	}
}

// A server with too few replicas writes nothing, and reads: the first answer is replayed, a held
// key is refused, and a free key stays free.
func TestReplaysWithoutReplicas(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	l := lock.New(overClient(t, srv.Addr(), nil), lock.WithBudget(patience), lock.WithLease(3*patience))
	once := func(key, receipt string) (got []byte, replayed bool, err error) {
		return l.Once(t.Context(), key, nil, func(context.Context) ([]byte, error) { return []byte(receipt), nil })
	}
	_, _, err := once("done", "first")
	require.NoError(t, err)
	held, err := lock.New(overClient(t, srv.Addr(), nil), lock.WithBudget(patience), lock.WithLease(3*patience)).Acquire(t.Context(), "held")
	require.NoError(t, err)
	srv.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")

	receipt, replayed, err := once("done", "second")
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, "first", string(receipt))
	_, err = l.Acquire(t.Context(), "held")
	require.ErrorIs(t, err, lock.ErrHeld)
	_, _, err = once("free", "unseen")
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.Equal(t, "NOREPLICAS", lock.Class(err))
	srv.Do(t, "CONFIG", "SET", "min-replicas-to-write", "0")
	receipt, replayed, err = once("free", "own")
	require.NoError(t, err)
	require.False(t, replayed)
	require.Equal(t, "own", string(receipt))
	require.NoError(t, held.Release(t.Context()))
}
