package redisstore_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock/redisstore"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

func TestCheckNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"fine": {},
		"evicts": {
			[]string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"},
			[]string{"redisstore: EVICTION: maxmemory-policy volatile-lru", "noeviction"},
		},
		"does not evict":  {[]string{"--maxmemory", "100mb"}, nil},
		"could not evict": {[]string{"--maxmemory-policy", "allkeys-lru"}, nil},
		"full and evicts": {
			[]string{"--maxmemory", "1", "--maxmemory-policy", "volatile-ttl"},
			[]string{"EVICTION", "redisstore: OOM: ", "raise maxmemory"},
		},
		"no slots": {[]string{"--cluster-enabled", "yes"}, []string{"redisstore: MOVED: ", "redis-cluster://", "CLUSTERDOWN"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, tt.args...)
			err := redisstore.New(redistest.Client(t, srv)).Check(timeout(t, patience))
			if len(tt.want) == 0 {
				require.NoError(t, err)
				require.Empty(t, srv.Keys(t), "nothing is left behind")
				return
			}
			require.Error(t, err)
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
			seen := map[string]bool{}
			for line := range strings.SplitSeq(err.Error(), "\n") {
				require.Regexp(t, `^redisstore: [A-Z]+: [^:]+.*: .+$`, line)
				code := strings.SplitN(line, ": ", 3)[1]
				require.False(t, seen[code], "said twice: %s", err)
				seen[code] = true
			}
		})
	}
}

// Check names each permission that the user lacks, in one line, whatever words the server has for it.
func TestCheckNamesMissingPermissions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		start  func(testing.TB, string) *respproxy.Proxy
		always string // permissions that the user has
		tried  string
		opts   []redisstore.Option
	}{
		"as it is":      {respproxy.Start, "", failure.MinimalACL, nil},
		"Redis 6.2":     {respproxy.StartRedis62, "", failure.MinimalACL, nil},
		"notifications": {respproxy.Start, failure.MinimalACL, failure.NotifyACL, []redisstore.Option{redisstore.WithNotifications()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			addr := tt.start(t, srv.Addr()).Addr()
			check := func(rules string) error {
				allow(t, srv, "u", tt.always, rules)
				client := clientOf(t, &redis.Options{Addr: addr, Username: "u", Password: "p"})
				return redisstore.New(client, tt.opts...).Check(timeout(t, patience))
			}
			require.NoError(t, check(tt.tried))
			for word := range strings.FieldsSeq(tt.tried) {
				want := strings.ToUpper(strings.TrimPrefix(word, "+"))
				switch {
				case word == "+client|setname":
					continue // the connection has no name then
				case strings.HasPrefix(word, "~"):
					if want = "on keys with the prefix"; name == "Redis 6.2" {
						continue
					}
				case strings.HasPrefix(word, "&"):
					want = "PUBLISH in a script on channels with the prefix"
				}
				err := check(strings.Replace(tt.tried, word, "", 1))
				require.ErrorContains(t, err, "redisstore: NOPERM: the user may not run ", word)
				require.ErrorContains(t, err, want)
				require.ErrorContains(t, err, tt.tried, "the cure")
				require.NotContains(t, err.Error(), "\n", word)
			}
		})
	}
}

func TestCheckOfOldServers(t *testing.T) {
	t.Parallel()
	for version, fine := range map[string]bool{
		"5.0.14": false, "6.0.16": false, "6.2.0": true, "6.10.1": true, "7.0.15": true, "unstable": true, "x.y": true,
	} {
		client := infoWrapper{redistest.Client(t, redistest.Shared(t)), "redis_version:" + version + "\r\nrole:master\r\n"}
		err := redisstore.New(client).Check(timeout(t, patience))
		if fine {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "redisstore: VERSION: the server is Redis "+version+": use Redis 6.2 or later")
		}
	}
}

// infoWrapper answers INFO.
type infoWrapper struct {
	redis.UniversalClient

	text string
}

func (w infoWrapper) Process(ctx context.Context, cmd redis.Cmder) error {
	if c, ok := cmd.(interface{ SetVal(any) }); ok && cmd.Name() == "info" {
		c.SetVal(w.text)
		return nil
	}
	return w.UniversalClient.Process(ctx, cmd)
}

func TestPermissionsAreDocumented(t *testing.T) {
	t.Parallel()
	doc := must.Get(os.ReadFile("doc.go"))(t)
	for _, rules := range []string{failure.MinimalACL + "\n", failure.ClusterACL, failure.LargeACL, failure.NotifyACL + "\n"} {
		require.Contains(t, string(doc), rules)
	}
}

// The store warns once, as soon as it has left a receipt, and never about locks alone, or if the user may not ask.
func TestWarnsOfReceiptsThatARestartLoses(t *testing.T) { //nolint:paralleltest // it reads the log of the process
	none := []string{"--save", "", "--appendonly", "no"}
	for name, tt := range map[string]struct {
		args     []string
		key      string
		rules    string
		warnings int
	}{
		"nothing is written":      {none, keytext.Record("order"), "", 1},
		"snapshots":               {[]string{"--save", "3600 1", "--appendonly", "no"}, keytext.Record("order"), "", 0},
		"an append-only file":     {[]string{"--save", "", "--appendonly", "yes"}, keytext.Record("order"), "", 0},
		"only locks":              {none, "user=42", "", 0},
		"CONFIG is not permitted": {none, keytext.Record("order"), "-config", 0},
	} {
		t.Run(name, func(t *testing.T) {
			log := logTo(t)
			srv := redistest.Start(t, tt.args...)
			allow(t, srv, "u", "~* +@all", tt.rules)
			s := overClient(t, srv.Addr(), as("u"))
			const warning = "the server has no persistence"
			require.NoError(t, s.Check(timeout(t, patience)))
			require.Zero(t, log.Count(warning), "there is no receipt yet")
			take(t, s, tt.key, known("a"))
			must.Yes(t)(s.Settle(t.Context(), tt.key, known("a"), []byte("ordered"), time.Hour))
			for range 3 {
				require.NoError(t, s.Check(timeout(t, patience)))
			}
			require.Equal(t, tt.warnings, log.Count(warning))
			require.NotContains(t, failure.MinimalACL, "config", "it is not required")
		})
	}
}
