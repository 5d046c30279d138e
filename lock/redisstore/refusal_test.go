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

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
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

// loseDisk makes a server refuse writes because it cannot save its data.
func loseDisk(t *testing.T, srv *redistest.Server) {
	t.Helper()
	srv.Do(t, "CONFIG", "SET", "save", "3600 1")
	require.NoError(t, os.RemoveAll(srv.Dir()))
	srv.Do(t, "BGSAVE")
	require.Eventually(t, func() bool {
		info, _ := srv.Do(t, "INFO", "persistence").(string)
		return strings.Contains(info, "rdb_last_bgsave_status:err")
	}, patience, 5*time.Millisecond)
}

// runEndlessly makes a server busy with a script.
func runEndlessly(t *testing.T, srv *redistest.Server) {
	t.Helper()
	client := redistest.Client(t, srv)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = client.Eval(context.Background(), "while true do end", nil).Err()
	}()
	t.Cleanup(func() {
		_ = redistest.Client(t, srv).ScriptKill(context.Background()).Err()
		<-done
	})
	require.Eventually(t, func() bool {
		return redis.HasErrorPrefix(client.Ping(t.Context()).Err(), "BUSY")
	}, patience, 5*time.Millisecond)
}

// slowlyLoading are the arguments of a server for loadSlowly. It looks at its clients after each key.
var slowlyLoading = []string{"--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024", "--rdbcompression", "no"}

// loadSlowly starts a server again, with data that it loads for half a minute.
func loadSlowly(t *testing.T, srv *redistest.Server) {
	t.Helper()
	srv.Do(t, "EVAL", "for i = 1, 3000 do redis.call('SET', 'filler:' .. i, string.rep('x', 2048)) end", 0)
	srv.Do(t, "SAVE")
	srv.Kill()
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		srv.Restart(t)
	}()
	client := redistest.Client(t, srv)
	t.Cleanup(func() {
		srv.Do(t, "CONFIG", "SET", "key-load-delay", 0)
		<-loaded
	})
	require.Eventually(t, func() bool {
		return redis.HasErrorPrefix(client.Ping(t.Context()).Err(), "LOADING")
	}, patience, 5*time.Millisecond)
}

func TestRefusalsOfRealServers(t *testing.T) {
	t.Parallel()
	const change = "takeover renew settle release get" // they find no entry to change
	does := func(args ...any) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, srv *redistest.Server) { srv.Do(t, args...) }
	}
	for name, tt := range map[string]struct {
		class, cure string
		allowed     string // operations that work all the same
		args        []string
		spoil       func(t *testing.T, srv *redistest.Server)
		client      func(*redis.Options)
	}{
		"out of memory": {class: "OOM", cure: "maxmemory", allowed: change, args: []string{"--maxmemory", "1"}},
		"replica":       {class: "READONLY", cure: "master", allowed: change, spoil: does("REPLICAOF", "127.0.0.1", redistest.Shared(t).Port())},
		"orphaned replica": {
			class: "MASTERDOWN|READONLY", cure: "master", args: []string{"--replica-serve-stale-data", "no"},
			spoil: does("REPLICAOF", "127.0.0.1", "1"),
		},
		"too few replicas": {class: "NOREPLICAS", cure: "min-replicas-to-write", allowed: change, args: []string{"--min-replicas-to-write", "1"}},
		"disk is gone":     {class: "MISCONF", cure: "disk", allowed: change, spoil: loseDisk},
		"no slots":         {class: "CLUSTERDOWN", cure: "CLUSTER INFO", args: []string{"--cluster-enabled", "yes"}},
		"no permission":    {class: "NOPERM", cure: "+evalsha", spoil: does("ACL", "SETUSER", "u", "on", ">p", "~latch:*", "+ping"), client: as("u")},
		"other keys only":  {class: "NOPERM", cure: "latch:*", spoil: does("ACL", "SETUSER", "u", "on", ">p", "~other:*", "+@all"), client: as("u")},
		"no password":      {class: "NOAUTH", cure: "password", args: []string{"--requirepass", "secret"}},
		"wrong password":   {class: "WRONGPASS", cure: "wrong", args: []string{"--requirepass", "secret"}, client: as("default")},
		"other type":       {class: "WRONGTYPE", cure: "WithPrefix", spoil: does("LPUSH", "latch:lock:k", "x")},
		"loading":          {class: "LOADING", spoil: loadSlowly, args: slowlyLoading},
		"busy":             {class: "BUSY", cure: "SCRIPT KILL", args: []string{"--lua-time-limit", "10"}, spoil: runEndlessly},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			srv := redistest.Start(t, tt.args...)
			if tt.spoil != nil {
				tt.spoil(t, srv)
			}
			s := overClient(t, srv.Addr(), tt.client)
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

// A server that is full can still return the holder of a key, and end its entry.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		start func(testing.TB, string) *respproxy.Proxy
		opts  []redisstore.Option
	}{
		"as it is": {respproxy.Start, nil}, "Redis 6.2": {respproxy.StartRedis62, nil},
		"its scripts publish": {respproxy.Start, []redisstore.Option{redisstore.WithNotifications()}},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			srv := redistest.Start(t)
			s, ctx := open(t, tt.start(t, srv.Addr()).URL(), tt.opts...), t.Context()
			for _, key := range []string{"renewed", "settled", "released", "held"} {
				take(t, s, key, claim("a"))
			}
			take(t, s, "fenced", fenced("f"))
			srv.Do(t, "CONFIG", "SET", "maxmemory", "1")

			for _, c := range []lock.Claim{claim("b"), fenced("f")} {
				_, err := s.Claim(ctx, "free", c)
				requireNotApplied(t, err, "OOM")
			}
			require.Equal(t, "a", must.Entry(t)(s.Claim(ctx, "held", claim("b"))).Token, "refusals need no memory")
			take(t, s, "held", claim("a")) // nor does the recovery of an unanswered claim

			lingering := claim("a")
			lingering.Linger = time.Hour
			must.Yes(t)(s.Renew(ctx, "renewed", lingering))
			require.Equal(t, lock.Held, must.Entry(t)(s.Get(ctx, "renewed")).State)

			must.Yes(t)(s.Settle(ctx, "settled", lock.Claim{Token: "a"}, []byte("receipt"), time.Hour))
			e := must.Entry(t)(s.Claim(ctx, "settled", claim("b")))
			require.Equal(t, "receipt", string(e.Receipt), "replays need no memory")
			require.InDelta(t, time.Hour, e.Left, float64(time.Minute))

			for key, token := range map[string]string{"released": "a", "fenced": "f"} {
				release(t, s, key, token)
				require.Equal(t, lock.Free, must.Entry(t)(s.Get(ctx, key)).State)
			}
		})
	}
}

// Without credentials nothing is sent.
func TestFailedCredentials(t *testing.T) {
	t.Parallel()
	s := overClient(t, redistest.Shared(t).Addr(), func(o *redis.Options) {
		o.CredentialsProviderContext = func(context.Context) (user, password string, err error) {
			return "", "", errors.New("the vault is sealed")
		}
	})
	for name, call := range operations {
		err := call(timeout(t, patience), s, keyFor(t))
		requireNotApplied(t, err, "handshake")
		require.ErrorContains(t, err, "the vault is sealed", name)
	}
}

// A server that can write nothing reads: it replays the first answer, and refuses a held key.
func TestReplaysWithoutWrites(t *testing.T) {
	t.Parallel()
	for class, tt := range map[string]struct {
		spoil func(t *testing.T, srv *redistest.Server)
		heal  []any
	}{
		"NOREPLICAS": {func(t *testing.T, srv *redistest.Server) {
			srv.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
		}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}},
		"MISCONF": {loseDisk, []any{"CONFIG", "SET", "stop-writes-on-bgsave-error", "no"}},
	} {
		parallel.Run(t, class, func(t *testing.T) {
			srv := redistest.Start(t)
			l, other := setLocker(t, overClient(t, srv.Addr(), nil)), setLocker(t, overClient(t, srv.Addr(), nil))
			once := func(key, receipt string) ([]byte, bool, error) {
				return l.Once(t.Context(), key, nil, func(context.Context) ([]byte, error) { return []byte(receipt), nil })
			}
			must.Run(t)(once("done", "first"))
			held := must.Get(other.Acquire(t.Context(), "held"))(t)
			tt.spoil(t, srv)
			require.Equal(t, "first", must.Replay(t)(once("done", "second")))
			_, err := l.Acquire(t.Context(), "held")
			require.ErrorIs(t, err, lock.ErrHeld)
			_, _, err = once("free", "unseen")
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.Equal(t, class, lock.Class(err))
			srv.Do(t, tt.heal...)
			require.Equal(t, "own", must.Run(t)(once("free", "own")))
			require.NoError(t, held.Release(t.Context()))
		})
	}
}
