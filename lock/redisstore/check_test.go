package redisstore_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock/redisstore"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

func TestCheckNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		do   [][]any
		want []string // "" for nothing
	}{
		"fine":            {},
		"evicts":          {args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"}, want: []string{"redisstore: EVICTION: maxmemory-policy volatile-lru", "noeviction"}},
		"evicts anything": {args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-random"}, want: []string{"allkeys-random"}},
		"does not evict":  {args: []string{"--maxmemory", "100mb"}},
		"could not evict": {args: []string{"--maxmemory-policy", "allkeys-lru"}},
		"full":            {args: []string{"--maxmemory", "1"}, want: []string{"redisstore: OOM: ", "raise maxmemory"}},
		"full and evicts": {args: []string{"--maxmemory", "1", "--maxmemory-policy", "volatile-ttl"}, want: []string{"EVICTION", "OOM"}},
		"replica":         {do: [][]any{{"REPLICAOF", "127.0.0.1", "1"}}, want: []string{"redisstore: READONLY: the server is a replica: ", "connect to the master"}},
		"no slots":        {args: []string{"--cluster-enabled", "yes"}, want: []string{"redisstore: MOVED: ", "redis-cluster://", "CLUSTERDOWN"}},
		"no replicas":     {args: []string{"--min-replicas-to-write", "1"}, want: []string{"NOREPLICAS"}},
		"password":        {args: []string{"--requirepass", "x"}, do: nil, want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, tt.args...)
			for _, args := range tt.do {
				srv.Do(t, args...)
			}
			s := redisstore.New(srv.Client(t))
			err := s.Check(timeout(t, patience))
			if len(tt.want) == 0 {
				require.NoError(t, err)
				require.Empty(t, srv.Keys(t), "nothing is left behind")
				return
			}
			require.Error(t, err)
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
			lines := strings.Split(err.Error(), "\n")
			for _, line := range lines {
				require.Regexp(t, `^redisstore: [A-Z]+: [^:]+.*: .+$`, line)
			}
			seen := map[string]bool{}
			for _, line := range lines {
				code := strings.SplitN(line, ": ", 3)[1]
				require.False(t, seen[code], "said twice: %s", err)
				seen[code] = true
			}
		})
	}
}

func TestCheckNamesMissingPermissions(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	words := strings.Fields(failure.MinimalACL)
	check := func(t *testing.T, user string, rules []string) error {
		args := []any{"ACL", "SETUSER", user, "on", ">p"}
		for _, r := range rules {
			args = append(args, r)
		}
		srv.Do(t, args...)
		s := overClient(t, srv.Addr(), func(o *redis.Options) { o.Username, o.Password = user, "p" })
		return s.Check(timeout(t, patience))
	}
	require.NoError(t, check(t, "minimal", words))
	for i, word := range words {
		if word == "+client|setname" {
			continue // the connection has no name then
		}
		without := append(append([]string{}, words[:i]...), words[i+1:]...)
		err := check(t, "without"+word, without)
		require.Error(t, err, word)
		require.ErrorContains(t, err, "NOPERM", word)
		require.ErrorContains(t, err, failure.MinimalACL)
		want := strings.ToUpper(strings.TrimPrefix(word, "+"))
		if strings.HasPrefix(word, "~") {
			want = "on keys with the prefix"
		}
		require.ErrorContains(t, err, want)
	}
}

func TestCheckOfOldServers(t *testing.T) {
	t.Parallel()
	for version, fine := range map[string]bool{
		"5.0.14": false, "6.0.16": false, "6.2.0": true, "6.10.1": true, "7.0.15": true, "8.2.1": true,
		"unstable": true, "x.y": true, "255.255.255": true,
	} {
		client := infoWrapper{redistest.Shared(t).Client(t), "redis_version:" + version + "\r\nrole:master\r\n"}
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

func TestCheckOfASentinel(t *testing.T) {
	t.Parallel()
	addr := startSentinel(t, "m", redistest.Shared(t), "p")
	_, err := redisstore.Open(timeout(t, patience), withLongTimeouts("redis://:p@"+addr+"?client_name=x"))
	require.ErrorContains(t, err, "redis-sentinel://")
	require.NotContains(t, err.Error(), "\n")
}

func TestPermissionsAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	require.Contains(t, string(doc), failure.MinimalACL+"\n")
	require.Contains(t, string(doc), failure.ClusterACL)
	require.Contains(t, string(doc), failure.LargeACL)
}

func TestCheckStopsAtWhatExplainsTheRest(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	s := overClient(t, p.Addr(), func(o *redis.Options) { o.DialerRetries = 1 })
	p.Down()
	err := s.Check(timeout(t, patience))
	require.Equal(t, "dial", class(err))
	require.NotContains(t, err.Error(), "\n")
}
