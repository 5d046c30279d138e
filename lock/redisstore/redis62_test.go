package redisstore_test

import (
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
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// overRedis62 are stores on srv, which answers them as Redis 6.2 does.
func overRedis62(t *testing.T, srv *redistest.Server, user string) map[string]*redisstore.Store {
	t.Helper()
	p := respproxy.StartRedis62(t, srv.Addr())
	url := "redis://" + p.Addr()
	if user != "" {
		url = "redis://" + user + ":p@" + p.Addr()
	}
	opened, err := redisstore.Open(t.Context(), withLongTimeouts(url), redisstore.WithoutCheck())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, opened.Close()) })
	return map[string]*redisstore.Store{
		"Open": opened,
		"New": overClient(t, p.Addr(), func(o *redis.Options) {
			if user != "" {
				o.Username, o.Password = user, "p"
			}
		}),
	}
}

// Redis 6.2 wraps the refusal of a command in a script. It is the same refusal,
// and as certain.
func TestRefusalsInScriptsOfRedis62(t *testing.T) {
	t.Parallel()
	scripts := []string{"claim again", "fenced claim", "takeover"}
	for name, tt := range map[string]struct {
		class, cure string
		denied      error // nil: another try may do
		user        string
		args        []string
		spoil       func(t *testing.T, srv *redistest.Server)
	}{
		"out of memory": {class: "OOM", cure: "raise maxmemory", denied: lock.ErrFull, spoil: func(t *testing.T, srv *redistest.Server) {
			t.Helper()
			srv.Do(t, "CONFIG", "SET", "maxmemory", "1")
		}},
		"replica": {class: "READONLY", cure: "connect to the master", spoil: func(t *testing.T, srv *redistest.Server) {
			t.Helper()
			srv.Do(t, "REPLICAOF", "127.0.0.1", "1")
		}},
		"disk is gone": {class: "MISCONF", cure: "cannot save to disk", denied: lock.ErrDenied, spoil: func(t *testing.T, srv *redistest.Server) {
			t.Helper()
			srv.Do(t, "CONFIG", "SET", "save", "3600 1")
			require.NoError(t, os.RemoveAll(srv.Dir()))
			srv.Do(t, "BGSAVE")
			require.Eventually(t, func() bool {
				info, _ := srv.Do(t, "INFO", "persistence").(string)
				return strings.Contains(info, "rdb_last_bgsave_status:err")
			}, patience, 5*time.Millisecond)
		}},
		"not permitted": {class: "NOPERM", cure: "+set", denied: lock.ErrDenied, user: "u", spoil: func(t *testing.T, srv *redistest.Server) {
			t.Helper()
			srv.Do(t, "ACL", "SETUSER", "u", "-set")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, tt.args...)
			srv.Do(t, "ACL", "SETUSER", "u", "on", ">p", "~latch:*", "+@all")
			stores := overRedis62(t, srv, tt.user)
			lapsing := claim("old")
			lapsing.Lease, lapsing.Linger = time.Millisecond, time.Hour
			for _, s := range stores { // each notices that the server does not have SET with NX and GET
				take(t, s, "known", claim("a"))
				_, err := s.Release(t.Context(), "known", lock.Claim{Token: "a"})
				require.NoError(t, err)
			}
			take(t, stores["New"], "lapsed", lapsing)
			require.Eventually(t, func() bool {
				e, err := stores["New"].Get(t.Context(), "lapsed")
				return err == nil && e.State == lock.Abandoned
			}, patience, time.Millisecond)
			tt.spoil(t, srv)
			for way, s := range stores {
				for _, call := range scripts {
					c, key := claim("b"), "free"
					switch call {
					case "fenced claim":
						c.Fenced = true
					case "takeover":
						c.Replaces, key = "old", "lapsed"
					}
					_, err := s.Claim(timeout(t, patience), key, c)
					requireNotApplied(t, err, tt.class)
					require.ErrorContains(t, err, tt.cure, way+" "+call)
					require.NotContains(t, err.Error(), "script (call to", "the refusal is named, not its wrapping")
					if tt.denied != nil {
						require.ErrorIs(t, err, tt.denied)
					} else {
						require.NotErrorIs(t, err, lock.ErrDenied)
					}
				}
				require.ErrorContains(t, s.Check(timeout(t, patience)), "redisstore: "+tt.class+": ")
			}
		})
	}
}

// A program error in a script of 6.2 is not a refusal: the commands before it
// were executed.
func TestErrorsOfScriptsOfRedis62AreNoRefusals(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	s := overClient(t, p.Addr(), nil)
	const call = "ERR Error running script (call to f_a5bf2e9062794ec979e7cd8098aaefde8f369d79): "
	for text, want := range map[string]string{
		call + "@user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.":           "OOM",
		call + "@user_script:9: @user_script: 9: -NOREPLICAS Not enough good replicas to write.":                     "NOREPLICAS",
		call + "@user_script:9: WRONGTYPE Operation against a key holding the wrong kind of value":                   "WRONGTYPE",
		call + "@user_script:9: @user_script: 9: The user executing the script can't run this command or subcommand": "NOPERM",
		call + "@user_script:9: attempt to index a nil value":                                                        "",
		call + "@user_script:9: @user_script: 9: Write commands not allowed after non deterministic commands.":       "",
		call + "@user_script:9: @user_script: 9: Unknown Redis command called from Lua script":                       "",
		call + "OOM of another kind": "",
		"ERR Error running script (call to f_0): @user_script:9: @user_script: 9: -OOM command not allowed":                  "",
		"upstream failure: @user_script:9: -OOM":                                                                             "",
		"ERR Error compiling script (new function): user_script:1: unexpected symbol near '<' @user_script: 1: -OOM command": "",
	} {
		rule := p.On(respproxy.Match{Name: "eval|evalsha"}, respproxy.ReplyErrorAfterApply(text))
		err := operations["fenced claim"](timeout(t, patience), s, keyFor(t))
		if want == "" {
			requireUnknown(t, err, "reply")
		} else {
			requireNotApplied(t, err, want)
		}
		rule.Remove()
	}
}

// Check finds the same on 6.2, where the errors that scripts catch are worded
// otherwise.
func TestCheckOfRedis62(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := respproxy.StartRedis62(t, srv.Addr())
	check := func(rules []string) error {
		args := []any{"ACL", "SETUSER", "u", "reset", "on", ">p"}
		for _, r := range rules {
			args = append(args, r)
		}
		srv.Do(t, args...)
		s := overClient(t, p.Addr(), func(o *redis.Options) { o.Username, o.Password = "u", "p" })
		return s.Check(timeout(t, patience))
	}
	words := strings.Fields(failure.MinimalACL)
	require.NoError(t, check(words))
	for i, word := range words {
		if word == "+client|setname" || strings.HasPrefix(word, "~") {
			continue
		}
		err := check(append(append([]string{}, words[:i]...), words[i+1:]...))
		require.ErrorContains(t, err, "redisstore: NOPERM: the user may not run ", word)
		require.ErrorContains(t, err, strings.ToUpper(strings.TrimPrefix(word, "+")), word)
		require.NotContains(t, err.Error(), "\n", word)
	}
}
