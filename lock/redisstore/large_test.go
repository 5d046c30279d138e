package redisstore_test

import (
	"bytes"
	"context"
	"slices"
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

var large = bytes.Repeat([]byte("0123456789abcdef"), 1<<16)

// settled settles the entry of keyFor with a large receipt.
func settled(t *testing.T, s lock.Store, token string) bool {
	t.Helper()
	ok, err := s.Settle(timeout(t, patience), keyFor(t), lock.Claim{Token: token}, large, time.Hour)
	require.NoError(t, err)
	return ok
}

// largeReceipt is from which size on a receipt is in no script.
const largeReceipt = 64 << 10

// whole is a claim in which every field says something.
func whole(token string) lock.Claim {
	return lock.Claim{
		Token: token, Attempt: 3, Owner: "host:1", Fingerprint: []byte("\x00print"), Lease: time.Minute, Linger: time.Hour, Fenced: true,
	}
}

// A receipt of any size makes the same of an entry, and a large one is in no script.
func TestLargeReceiptIsInNoScript(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	for name, size := range map[string]int{"small": largeReceipt - 1, "large": largeReceipt, "1 MiB": len(large)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := respproxy.Start(t, srv.Addr())
			long := func(args [][]byte) bool {
				return slices.ContainsFunc(args, func(arg []byte) bool { return len(arg) >= largeReceipt })
			}
			scripts := p.On(respproxy.Match{Name: "eval|evalsha", Func: long}, respproxy.Action{})
			s := overClient(t, p.Addr(), nil)
			for _, key := range []string{keyFor(t), keyFor(t) + strings.Repeat("#", 200)} {
				name := entryName(key)
				take(t, s, key, whole("a"))
				held, _ := srv.Do(t, "GET", name).(string)
				for range 2 { // the second one changes nothing
					ok, err := s.Settle(t.Context(), key, lock.Claim{Token: "a"}, large[:size], time.Hour)
					require.NoError(t, err)
					require.True(t, ok)
					require.Equal(t, "S"+held[1:]+string(large[:size]), srv.Do(t, "GET", name))
					require.InDelta(t, time.Hour.Milliseconds(), srv.Do(t, "PTTL", name), 60_000)
				}
				e, err := s.Get(t.Context(), key)
				require.NoError(t, err)
				require.Equal(t, large[:size], e.Receipt)
			}
			require.Zero(t, scripts.Hits())
		})
	}
}

// A large receipt is settled in two steps. If the entry changes between
// the steps, the second step leaves an entry of another token unchanged.
func TestLargeReceiptMeetsAnotherEntry(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		happens func(t *testing.T, s lock.Store, key string)
		ok      bool
	}{
		"nothing": {func(*testing.T, lock.Store, string) {}, true},
		"renewed": {func(t *testing.T, s lock.Store, key string) {
			t.Helper()
			c := whole("a")
			c.Linger *= 2
			ok, err := s.Renew(t.Context(), key, c)
			require.NoError(t, err)
			require.True(t, ok)
		}, true},
		"settled": {func(t *testing.T, s lock.Store, key string) {
			t.Helper()
			ok, err := s.Settle(t.Context(), key, lock.Claim{Token: "a"}, large, time.Hour)
			require.NoError(t, err)
			require.True(t, ok)
		}, true},
		"another's": {func(t *testing.T, s lock.Store, key string) {
			t.Helper()
			release(t, s, key, "a")
			take(t, s, key, whole("b"))
		}, false},
		"another's, whose token begins like this one": {func(t *testing.T, s lock.Store, key string) {
			t.Helper()
			release(t, s, key, "a")
			take(t, s, key, whole("a1"))
		}, false},
		"released, with a fence": {func(t *testing.T, s lock.Store, key string) {
			t.Helper()
			release(t, s, key, "a")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			require.Equal(t, tt.ok, meet(t, p, tt.happens))
			e, err := overClient(t, redistest.Shared(t).Addr(), nil).Get(t.Context(), keyFor(t))
			require.NoError(t, err)
			require.Equal(t, tt.ok, bytes.Equal(large, e.Receipt))
			require.Equal(t, tt.ok, e.State == lock.Settled)
		})
	}
	t.Run("gone", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Shared(t)
		require.False(t, meet(t, respproxy.Start(t, srv.Addr()), func(t *testing.T, _ lock.Store, _ string) {
			t.Helper()
			srv.Do(t, "DEL", nameOf(t))
		}))
		require.Eventually(t, func() bool { return srv.Do(t, "EXISTS", nameOf(t)) == int64(0) }, patience, time.Millisecond, "nothing is left behind")
	})
	t.Run("must fail: the receipt is set whatever the script has found", func(t *testing.T) {
		t.Parallel()
		p := respproxy.Start(t, redistest.Shared(t).Addr())
		p.On(respproxy.Match{Name: "set", Func: func(args [][]byte) bool { return len(args[2]) > len(large) }},
			respproxy.Translate(func(args [][]byte) [][]byte { return slices.Concat(args[:3], args[4:]) }, nil))
		meet(t, p, func(t *testing.T, s lock.Store, key string) {
			t.Helper()
			release(t, s, key, "a")
			take(t, s, key, whole("b"))
		})
		e, err := overClient(t, redistest.Shared(t).Addr(), nil).Get(t.Context(), keyFor(t))
		require.NoError(t, err)
		require.Equal(t, large, e.Receipt, "the cases above would not have found it")
	})
}

// meet settles a large receipt through p, and something happens to the entry before
// the second transaction begins.
func meet(t *testing.T, p *respproxy.Proxy, happens func(t *testing.T, s lock.Store, key string)) bool {
	t.Helper()
	direct := overClient(t, redistest.Shared(t).Addr(), nil)
	through := overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = patience, patience })
	take(t, direct, keyFor(t), whole("a"))
	second := p.On(respproxy.Match{Name: "eval", Key: nameOf(t)}, respproxy.Hold())
	type result struct {
		ok  bool
		err error
	}
	done := make(chan result, 1)
	go func() {
		ok, err := through.Settle(timeout(t, patience), keyFor(t), lock.Claim{Token: "a"}, large, time.Hour)
		done <- result{ok, err}
	}()
	second.Wait(t, 1)
	happens(t, direct, keyFor(t))
	second.Remove()
	second.Deliver(t)
	r := <-done
	require.NoError(t, r.err)
	return r.ok
}

// Where the server has no transactions, or not for this user, or no memory, a large
// receipt is settled by the script.
func TestLargeReceiptWithoutTransactions(t *testing.T) {
	t.Parallel()
	through := func(name string, skip int, action respproxy.Action) func(t *testing.T) (*redistest.Server, *redisstore.Store) {
		return func(t *testing.T) (*redistest.Server, *redisstore.Store) {
			t.Helper()
			srv := redistest.Shared(t)
			p := respproxy.Start(t, srv.Addr())
			p.On(respproxy.Match{Name: name, Skip: skip}, action)
			return srv, overClient(t, p.Addr(), nil)
		}
	}
	refused := respproxy.ReplyError("ERR unknown command 'MULTI'")
	aborted := respproxy.Translate( // as a server does that has refused one of its commands
		func([][]byte) [][]byte { return [][]byte{[]byte("discard")} },
		func([]byte) []byte {
			return []byte("-EXECABORT Transaction discarded because of previous errors.\r\n")
		})
	unknown := respproxy.Translate(func(args [][]byte) [][]byte { return append([][]byte{[]byte("unknown")}, args[1:]...) }, nil)
	for name, start := range map[string]func(t *testing.T) (*redistest.Server, *redisstore.Store){
		"no MULTI":     through("multi", 0, refused),
		"aborted":      through("exec", 0, aborted),
		"aborted late": through("exec", 1, aborted),
		"no EVAL":      through("eval", 0, unknown),
		"another client": func(t *testing.T) (*redistest.Server, *redisstore.Store) {
			t.Helper()
			srv := redistest.Shared(t)
			return srv, redisstore.New(struct{ redis.UniversalClient }{srv.Client(t)})
		},
		"no right to do that": func(t *testing.T) (*redistest.Server, *redisstore.Store) {
			t.Helper()
			srv := redistest.Start(t)
			args := []any{"ACL", "SETUSER", "u", "on", ">p"}
			for rule := range strings.FieldsSeq(failure.MinimalACL) {
				args = append(args, rule)
			}
			srv.Do(t, args...)
			return srv, open(t, "redis://u:p@"+srv.Addr())
		},
		"no memory": func(t *testing.T) (*redistest.Server, *redisstore.Store) {
			t.Helper()
			srv := redistest.Start(t)
			return srv, overClient(t, srv.Addr(), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, s := start(t)
			direct := overClient(t, srv.Addr(), nil) // the server knows the scripts afterwards
			take(t, direct, keyFor(t)+"2", claim("a"))
			_, err := direct.Settle(t.Context(), keyFor(t)+"2", lock.Claim{Token: "a"}, nil, time.Hour)
			require.NoError(t, err)
			take(t, direct, keyFor(t), whole("a"))
			if name == "no memory" {
				srv.Do(t, "CONFIG", "SET", "maxmemory", "1")
			}
			require.True(t, settled(t, s, "a"))
			require.False(t, settled(t, s, "b"))
			e, err := s.Get(t.Context(), keyFor(t))
			require.NoError(t, err)
			require.Equal(t, large, e.Receipt)
			require.Equal(t, "a", e.Token)
		})
	}
}

// A large receipt whose answer is lost is settled or not; the same call again finds out.
func TestLargeReceiptWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lost  respproxy.Action
		class string
	}{
		"applied":          {respproxy.Swallow(respproxy.Close), "connection"},
		"not applied":      {respproxy.Drop(respproxy.Close), "connection"},
		"applied, in vain": {respproxy.Swallow(respproxy.Hang), "cancelled"},
		"the server hangs": {respproxy.Drop(respproxy.Hang), "cancelled"},
		"lands much later": {respproxy.Hold(), "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			s := overClient(t, p.Addr(), nil)
			take(t, s, keyFor(t), whole("a"))
			lost := p.On(respproxy.Match{Name: "exec", Skip: 1, Count: 1}, tt.lost)
			ctx, leave := context.WithCancel(timeout(t, patience))
			if tt.class == "cancelled" {
				go func() {
					defer leave()
					for lost.Hits() == 0 && ctx.Err() == nil {
						time.Sleep(time.Millisecond)
					}
				}()
			}
			_, err := s.Settle(ctx, keyFor(t), lock.Claim{Token: "a"}, large, time.Hour)
			leave()
			requireUnknown(t, err, tt.class)
			require.Equal(t, 1, lost.Hits())
			require.Equal(t, 2, p.Commands("multi"), "the client has not repeated it by itself")
			require.True(t, settled(t, s, "a"))
			lost.Remove()
			lost.Deliver(t)
			e, err := s.Get(t.Context(), keyFor(t))
			require.NoError(t, err)
			require.Equal(t, large, e.Receipt)
		})
	}
}

// In a Cluster the transaction goes to the node that has the key.
func TestLargeReceiptInACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, nil)
	s := redisstore.New(cluster.Client(t))
	for i := range 10 {
		key := keyFor(t) + strings.Repeat("x", i)
		take(t, s, key, whole("a"))
		ok, err := s.Settle(timeout(t, patience), key, lock.Claim{Token: "a"}, large, time.Hour)
		require.NoError(t, err)
		require.True(t, ok)
		e, err := s.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, large, e.Receipt)
	}
}

// A caller that waits is notified of a large receipt, and finds it.
func TestLargeReceiptIsPublished(t *testing.T) {
	t.Parallel()
	s := notifying(t, redistest.Shared(t).Client(t))
	take(t, s, keyFor(t), claim("a"))
	wake, stop := s.Watch(keyFor(t))
	defer stop()
	hears(t, wake)
	require.True(t, settled(t, s, "a"))
	hears(t, wake)
	e, err := s.Get(t.Context(), keyFor(t))
	require.NoError(t, err)
	require.Equal(t, lock.Settled, e.State)
}

// A large receipt does not change the client of Open: refusals by its nodes are
// certain afterwards, too.
func TestLargeReceiptLeavesTheClientOfOpen(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 1, nil)
	s := open(t, cluster.URL())
	take(t, s, keyFor(t), whole("a"))
	require.True(t, settled(t, s, "a"))
	cluster.Nodes[0].Do(t, "CONFIG", "SET", "maxmemory", "1")
	_, err := s.Claim(timeout(t, patience), keyFor(t)+"2", claim("b"))
	requireNotApplied(t, err, "OOM")
}

// A user who may begin a transaction and not end it leaves none open on a connection.
func TestLargeReceiptLeavesNoTransactionOpen(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for name, rules := range map[string][]any{
		"no EXEC": {"-exec"}, "no EXEC, no DISCARD": {"-exec", "-discard"}, "no GET": {"-get"}, "no EVAL": {"-eval"}, "no MULTI": {"-multi"},
	} {
		t.Run(name, func(t *testing.T) {
			user := strings.NewReplacer(" ", "", ",", "").Replace(name)
			srv.Do(t, append([]any{"ACL", "SETUSER", user, "on", ">p", "~*", "&*", "+@all"}, rules...)...)
			client := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: user, Password: "p"})
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			s := redisstore.New(client)
			if rules[0] == "-get" || rules[0] == "-eval" {
				take(t, overClient(t, srv.Addr(), nil), keyFor(t), claim("a"))
				_, _ = s.Settle(timeout(t, patience), keyFor(t), lock.Claim{Token: "a"}, large, time.Hour)
			} else {
				take(t, s, keyFor(t), claim("a"))
				require.True(t, settled(t, s, "a"))
			}
			require.NoError(t, client.Ping(t.Context()).Err())
			for range 3 {
				pong := client.Ping(t.Context())
				require.NoError(t, pong.Err())
				require.Equal(t, "PONG", pong.Val())
				pipe := client.Pipeline()
				pong = pipe.Ping(t.Context())
				_, err := pipe.Exec(t.Context())
				require.NoError(t, err)
				require.Equal(t, "PONG", pong.Val())
			}
		})
	}
}

// A receipt that is too long for the server, or for a proxy before it, is refused for good, and the
// work counts as done.
func TestReceiptThatIsTooLong(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *redisstore.Store{
		"server": func(t *testing.T) *redisstore.Store {
			t.Helper()
			return open(t, redistest.Start(t, "--proto-max-bulk-len", "1mb").URL())
		},
		"server, through the client": func(t *testing.T) *redisstore.Store {
			t.Helper()
			return redisstore.New(unknownClient{redistest.Start(t, "--proto-max-bulk-len", "1mb").Client(t)})
		},
		"proxy that reads no further": func(t *testing.T) *redisstore.Store {
			t.Helper()
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			p.On(respproxy.Match{Func: func(args [][]byte) bool {
				return slices.ContainsFunc(args, func(arg []byte) bool { return len(arg) > 1<<20 })
			}}, respproxy.Drop(respproxy.Reset))
			return overClient(t, p.Addr(), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			l := lock.New(s, lock.WithBudget(10*time.Second))
			t.Cleanup(func() { require.NoError(t, l.Close(timeout(t, patience))) })
			answer := bytes.Repeat(large, 5)
			receipt, replayed, err := l.Once(t.Context(), keyFor(t), nil, func(context.Context) ([]byte, error) { return answer, nil })
			require.NoError(t, err)
			require.False(t, replayed)
			require.Equal(t, answer, receipt)
			receipt, replayed, err = l.Once(t.Context(), keyFor(t), nil, func(context.Context) ([]byte, error) {
				t.Error("it runs again")
				return nil, nil
			})
			require.NoError(t, err)
			require.True(t, replayed)
			require.Empty(t, receipt)
			require.Zero(t, l.Stats().Backlog)
		})
	}
}
