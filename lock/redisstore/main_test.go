package redisstore_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/journal"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(refusalsVariable); how != "" {
		refuseClaims(how)
		return
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // New has advice for the clients with default options
	logging.Disable()
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))) // with a single processor a few commands share round trips
	testmain.AtOnce(4)
	goleak.VerifyTestMain(redistest.Main(m))
}

// open returns a store on the server at url, as Open sets it up except for timeouts
// that url does not set: a busy machine would exceed the timeouts of Open.
func open(tb testing.TB, url string, opts ...redisstore.Option) *redisstore.Store {
	tb.Helper()
	s := must.Get(redisstore.Open(timeout(tb, 30*time.Second), withLongTimeouts(url), opts...))(tb)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// withLongTimeouts adds long timeouts to a URL, first, because of two values of a parameter the last counts.
func withLongTimeouts(url string) string {
	base, query, _ := strings.Cut(url, "?")
	return base + "?dial_timeout=10s&read_timeout=10s&write_timeout=10s&pool_timeout=10s&" + query
}

// untilSent makes a call with a short time-out again until it is sent. On a busy machine, the
// first one may end before it is sent.
func untilSent(tb testing.TB, call func() error) error {
	tb.Helper()
	for end := time.Now().Add(patience); ; {
		err := call()
		if !errors.Is(err, lock.ErrNotApplied) || time.Now().After(end) {
			return err
		}
	}
}

// overClient returns a store over a client of the server at addr. set may change its default options.
func overClient(tb testing.TB, addr string, set func(*redis.Options)) *redisstore.Store {
	tb.Helper()
	o := &redis.Options{Addr: addr}
	if set != nil {
		set(o)
	}
	return redisstore.New(clientOf(tb, o))
}

// clientOf returns a client that is closed with the test.
func clientOf(tb testing.TB, o *redis.Options) *redis.Client {
	tb.Helper()
	client := redis.NewClient(o)
	tb.Cleanup(func() { require.NoError(tb, client.Close()) })
	return client
}

// allow makes user, with the password "p", on srv. It has these permissions only.
func allow(tb testing.TB, srv *redistest.Server, user string, rules ...string) {
	tb.Helper()
	args := []any{"ACL", "SETUSER", user, "reset", "on", ">p"}
	for rule := range strings.FieldsSeq(strings.Join(rules, " ")) {
		args = append(args, rule)
	}
	srv.Do(tb, args...)
}

// as are the options of a client for a user that allow has made.
func as(user string) func(*redis.Options) {
	return func(o *redis.Options) { o.Username, o.Password = user, "p" }
}

// keyFor returns the key of a test. No other test has it, and no other run over the same server (-count).
func keyFor(tb testing.TB) string {
	tb.Helper()
	name := tb.Name()
	key, known := keys.LoadOrStore(name, lock.Key("test", name, uuid.NewString()))
	if !known {
		tb.Cleanup(func() { keys.Delete(name) })
	}
	return key.(string)
}

var keys sync.Map // by test

// entryName is where the entry of key is.
func entryName(key string) string {
	name, _ := entry.Name("latch:", key)
	return name
}

// nameOf is where the entry of keyFor is.
func nameOf(tb testing.TB) string {
	tb.Helper()
	return entryName(keyFor(tb))
}

// claim is a claim of a minute.
func claim(token string) lock.Claim { return lock.Claim{Token: token, Attempt: 1, Lease: time.Minute} }

// timeout is a context that ends after d or with the test.
func timeout(tb testing.TB, d time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	tb.Cleanup(cancel)
	return ctx
}

// take claims key and expects to get it.
func take(tb testing.TB, s lock.Store, key string, c lock.Claim) lock.Entry {
	tb.Helper()
	e := must.Entry(tb)(s.Claim(timeout(tb, patience), key, c))
	require.Equal(tb, lock.Held, e.State)
	require.Equal(tb, c.Token, e.Token)
	return e
}

// class names the classes of errors that a Locker distinguishes.
func class(err error) string {
	var c interface{ Class() string }
	if errors.As(err, &c) {
		return c.Class()
	}
	return ""
}

func requireNotApplied(tb testing.TB, err error, want string) {
	tb.Helper()
	require.Error(tb, err)
	require.Equal(tb, want, class(err), err)
	require.ErrorIs(tb, err, lock.ErrNotApplied)
}

func requireUnknown(tb testing.TB, err error, want string) {
	tb.Helper()
	require.Error(tb, err)
	require.Equal(tb, want, class(err), err)
	require.NotErrorIs(tb, err, lock.ErrNotApplied)
}

// logTo makes a journal the log of the process until the test ends.
func logTo(t *testing.T) *journal.Journal {
	t.Helper()
	j, before := new(journal.Journal), slog.Default()
	slog.SetDefault(j.Logger())
	t.Cleanup(func() { slog.SetDefault(before) })
	return j
}
