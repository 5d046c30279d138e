package snippets_test

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/walk"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func withStore(ctx context.Context, url string, use func(*lock.Locker)) error {
	store, err := redisstore.Open(ctx, url, redisstore.WithPrefix("shop:"))
	if err != nil {
		return err
	}
	defer store.Close()
	locker := lock.New(store)

	use(locker)
	return locker.Close(ctx)
}

// commandsOf are the commands in the blocks of a page that are for redis-cli.
func commandsOf(t *testing.T, page string) [][]any {
	t.Helper()
	var commands [][]any
	for _, b := range walk.Blocks(t, page) {
		if b.Language != "redis" {
			continue
		}
		for line := range strings.Lines(b.Text) {
			var words []any
			for word := range strings.FieldsSeq(line) {
				words = append(words, word)
			}
			commands = append(commands, words)
		}
	}
	return commands
}

// TestRedisUserSuffices makes the user of the page, with what the page says to
// add, and has it do all that the library does. The server notes what a user was
// refused.
func TestRedisUserSuffices(t *testing.T) {
	t.Parallel()
	setUser := commandsOf(t, "../redis.md")[0]
	require.Equal(t, []any{"ACL", "SETUSER", "orders"}, setUser[:3])
	added := func(t *testing.T, row string) []any {
		t.Helper()
		m := regexp.MustCompile(`(?m)^\| ` + row + `.*? \| .(.*?). \|$`).FindStringSubmatch(read(t, "../redis.md"))
		require.NotNil(t, m, row)
		var words []any
		for word := range strings.FieldsSeq(strings.ReplaceAll(m[1], `\|`, "|")) {
			words = append(words, word)
		}
		return words
	}
	for name, tt := range map[string]struct {
		row  string // of the table
		open func(t *testing.T) (srv *redistest.Server, url string)
		opts []redisstore.Option
	}{
		"server": {"", func(t *testing.T) (*redistest.Server, string) {
			srv := redistest.Start(t)
			return srv, "redis://orders:secret@" + srv.Addr()
		}, nil},
		"database": {"a database", func(t *testing.T) (*redistest.Server, string) {
			srv := redistest.Start(t)
			return srv, "redis://orders:secret@" + srv.Addr() + "/7"
		}, nil},
		"notifications": {"`redisstore.WithNotifications`", func(t *testing.T) (*redistest.Server, string) {
			srv := redistest.Start(t)
			return srv, "redis://orders:secret@" + srv.Addr()
		}, []redisstore.Option{redisstore.WithNotifications()}},
		"cluster": {"a Cluster", func(t *testing.T) (*redistest.Server, string) {
			cluster := redistest.StartCluster(t, 1, nil)
			return cluster.Nodes[0], "redis-cluster://orders:secret@" + cluster.Addrs()[0]
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, url := tt.open(t)
			rules := setUser
			if tt.row != "" {
				rules = append(slices.Clip(rules), added(t, tt.row)...)
			}
			srv.Do(t, rules...)
			store, err := redisstore.Open(t.Context(), url, append(tt.opts, redisstore.WithPrefix("shop:"))...)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			if tt.row == "" { // package redisstore does this for the others
				t.Run("store", func(t *testing.T) {
					latchtest.TestStore(t, 50*time.Millisecond, func(*testing.T) lock.Store { return store })
				})
			}
			t.Run("routes", func(t *testing.T) {
				var app application
				h := stdlibRoutes(newLocker(t, store, lock.WithWait(10*time.Second), lock.WithBudget(10*time.Second)), app.handler(201), app.handler(200))
				waiting := make(chan int)
				app.whileIn(func() {
					go func() { waiting <- ask(h, "POST", "/orders", "another").Code }()
					for _, err := range store.List(t.Context()) {
						require.NoError(t, err)
					}
				})
				require.Equal(t, 201, ask(h, "POST", "/orders", "k").Code)
				require.Equal(t, 201, <-waiting)
				require.Equal(t, "true", ask(h, "POST", "/orders", "k").Header().Get("Idempotent-Replayed"))
				require.EqualValues(t, 2, app.effects.Load())
			})
			require.NoError(t, store.Check(t.Context()))
			refused, err := srv.Client(t).ACLLog(t.Context(), 10).Result()
			require.NoError(t, err)
			for _, r := range refused {
				require.Regexp(t, "^(delifeq|delex|config\\|get)$", r.Object, "what a newer server has, and its persistence, is asked for once")
			}
		})
	}
}

// TestRedisUserWithoutARight: what the test above looks for is there to be
// found.
func TestRedisUserWithoutARight(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var rules []any
	for _, rule := range commandsOf(t, "../redis.md")[0] {
		if rule != "+pexpire" {
			rules = append(rules, rule)
		}
	}
	srv.Do(t, rules...)
	err := withStore(t.Context(), "redis://orders:secret@"+srv.Addr(), func(*lock.Locker) {})
	require.ErrorContains(t, err, "pexpire")
	require.NotEmpty(t, srv.Do(t, "ACL", "LOG"))
}

func TestRedisKeysAreWhereThePageLooks(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	srv.Do(t, commandsOf(t, "../redis.md")[0]...)
	look := commandsOf(t, "../redis.md")[1:]
	require.Len(t, look, 3)
	require.NoError(t, withStore(t.Context(), "redis://orders:secret@"+srv.Addr(), func(locker *lock.Locker) {
		h := latch.Lock(locker, "user", keyfunc.Context(auth.UserID))(http.HandlerFunc(
			func(http.ResponseWriter, *http.Request) {
				scanned := srv.Do(t, look[0]...)
				require.Contains(t, scanned, []any{"shop:lock:user=42"})
				require.Positive(t, srv.Do(t, look[1]...))
				require.NotEmpty(t, srv.Do(t, look[2]...))
			}))
		require.Equal(t, 200, served(auth.Require(h), "POST", "/orders", "").Code)
	}))
	require.Nil(t, srv.Do(t, look[2]...))
}
