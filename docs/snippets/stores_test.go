package snippets_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/internal/testkit/walk"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/quorum"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func newMyStore(_ string) lock.Store { return memstore.New() }

func TestMyStore(t *testing.T) {
	const address = "localhost:4000" // of a server
	testmain.SkipIn(t, testmain.Short, "waits for leases to end")
	latchtest.TestStore(t, 50*time.Millisecond, func(*testing.T) lock.Store {
		return newMyStore(address)
	})
}

func withQuorum(ctx context.Context, urls []string, use func(*lock.Locker)) error {
	var stores []lock.Store
	for _, url := range urls { // redis://a:6379, redis://b:6379, redis://c:6379
		s, err := redisstore.Open(ctx, url, redisstore.WithPrefix("shop:"), redisstore.WithoutCheck())
		if err != nil {
			return err
		}
		defer s.Close()
		stores = append(stores, s)
	}
	locker := lock.New(quorum.New(stores))

	use(locker)
	return locker.Close(ctx)
}

func TestQuorumOfThePage(t *testing.T) {
	t.Parallel()
	var urls []string
	var servers []*redistest.Server
	for range 3 {
		srv := redistest.Start(t)
		servers, urls = append(servers, srv), append(urls, srv.URL())
	}
	require.NoError(t, withQuorum(t.Context(), urls, func(locker *lock.Locker) {
		holding := 0
		require.Eventually(t, func() bool { // a busy machine may not serve the first claim
			return locker.Do(t.Context(), lock.Key("user", "42"), func(context.Context) error {
				for _, srv := range servers {
					holding += len(srv.Keys(t))
				}
				return nil
			}) == nil || holding > 0
		}, 30*time.Second, 10*time.Millisecond)
		require.GreaterOrEqual(t, holding, 2, "a majority")
	}))
}

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

func commandsOf(t *testing.T, page string) [][]any {
	t.Helper()
	var commands [][]any
	for _, b := range walk.Blocks(t, page) {
		if b.Language != "redis" {
			continue
		}
		for line := range strings.Lines(b.Text) {
			commands = append(commands, wordsOf(line))
		}
	}
	return commands
}

func wordsOf(line string) (words []any) {
	for word := range strings.FieldsSeq(line) {
		words = append(words, word)
	}
	return words
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
		return wordsOf(strings.ReplaceAll(m[1], `\|`, "|"))
	}
	single := func(t *testing.T) *redistest.Server { t.Helper(); return redistest.Start(t) }
	for name, tt := range map[string]struct {
		row   string // of the table
		start func(t *testing.T) *redistest.Server
		url   string
		opts  []redisstore.Option
	}{
		"server":        {"", single, "redis://orders:secret@%s", nil},
		"database":      {"a database", single, "redis://orders:secret@%s/7", nil},
		"notifications": {"`redisstore.WithNotifications`", single, "redis://orders:secret@%s", []redisstore.Option{redisstore.WithNotifications()}},
		"cluster": {"a Cluster", func(t *testing.T) *redistest.Server {
			t.Helper()
			return redistest.StartCluster(t, 1, nil).Nodes[0]
		}, "redis-cluster://orders:secret@%s", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := tt.start(t)
			rules := setUser
			if tt.row != "" {
				rules = append(slices.Clip(rules), added(t, tt.row)...)
			}
			srv.Do(t, rules...)
			store, err := redisstore.Open(t.Context(), fmt.Sprintf(tt.url, srv.Addr()), append(tt.opts, redisstore.WithPrefix("shop:"))...)
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
			for _, refused := range regexp.MustCompile(`object (\S+)`).FindAllStringSubmatch(fmt.Sprint(srv.Do(t, "ACL", "LOG", 10)), -1) {
				require.Regexp(t, "^(delifeq|delex|config\\|get)$", refused[1], "what a newer server has, and its persistence, is asked for once")
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
				require.Contains(t, srv.Do(t, look[0]...), []any{"shop:lock:user=42"})
				require.Positive(t, srv.Do(t, look[1]...))
				require.NotEmpty(t, srv.Do(t, look[2]...))
			}))
		require.Equal(t, 200, served(auth.Require(h), "POST", "/orders", "").Code)
	}))
	require.Nil(t, srv.Do(t, look[2]...))
}

func TestEvictionIsRefused(t *testing.T) {
	t.Parallel()
	tested := 0
	for _, b := range walk.Blocks(t, "../redis.md") {
		switch b.Language {
		case "text":
			tested++
			srv := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru")
			_, err := redisstore.Open(t.Context(), srv.URL())
			require.EqualError(t, err, strings.TrimSuffix(b.Text, "\n"))
		case "conf":
			tested++
			var args []string
			for line := range strings.Lines(b.Text) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
				args = append(args, "--"+name, value)
			}
			srv := redistest.Start(t, args...)
			require.NoError(t, withStore(t.Context(), srv.URL(), func(*lock.Locker) {}))
		}
	}
	require.Equal(t, 2, tested)
}

// One bucket for all may use all of it.
func TestEmbeddedStoreOfOneScope(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.WithLimits(200_000, 1<<30), memstore.WithScopeShare(1))

	c := lock.Claim{Token: "t", Scope: "*", Lease: time.Hour}
	for i := range 200_000 {
		if _, err := store.Claim(t.Context(), fmt.Sprint(i), c); err != nil {
			t.Fatal(i, err)
		}
	}
	_, err := store.Claim(t.Context(), "more", c)
	require.ErrorIs(t, err, lock.ErrFull)
}
