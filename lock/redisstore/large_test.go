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

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

var large = bytes.Repeat([]byte("0123456789abcdef"), 1<<16)

// settled settles the entry of keyFor with a large receipt.
func settled(t *testing.T, s lock.Store, token string) bool {
	t.Helper()
	ok := must.Get(s.Settle(timeout(t, patience), keyFor(t), lock.Claim{Token: token}, large, time.Hour))(t)
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
	for name, size := range map[string]int{"small": largeReceipt - 1, "large": largeReceipt} {
		parallel.Run(t, name, func(t *testing.T) {
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
					must.Yes(t)(s.Settle(t.Context(), key, lock.Claim{Token: "a"}, large[:size], time.Hour))
					require.Equal(t, "S"+held[1:]+string(large[:size]), srv.Do(t, "GET", name))
					require.InDelta(t, time.Hour.Milliseconds(), srv.Do(t, "PTTL", name), 60_000)
				}
				require.Equal(t, large[:size], must.Entry(t)(s.Get(t.Context(), key)).Receipt)
			}
			require.Zero(t, scripts.Hits())
		})
	}
}

// A large receipt is settled in two steps. If the entry changes between
// the steps, the second step leaves an entry of another token unchanged.
func TestLargeReceiptMeetsAnotherEntry(t *testing.T) {
	t.Parallel()
	longer := whole("a")
	longer.Linger *= 2
	for name, tt := range map[string]struct {
		happens func(t *testing.T, s *redisstore.Store, key string)
		ok      bool
	}{
		"nothing": {func(*testing.T, *redisstore.Store, string) {}, true},
		"renewed": {func(t *testing.T, s *redisstore.Store, key string) {
			must.Yes(t)(s.Renew(t.Context(), key, longer))
		}, true},
		"settled": {func(t *testing.T, s *redisstore.Store, _ string) { require.True(t, settled(t, s, "a")) }, true},
		"another's": {func(t *testing.T, s *redisstore.Store, key string) {
			release(t, s, key, "a")
			take(t, s, key, whole("b"))
		}, false},
		"another's, whose token begins like this one": {func(t *testing.T, s *redisstore.Store, key string) {
			release(t, s, key, "a")
			take(t, s, key, whole("a1"))
		}, false},
		"released, with a fence": {func(t *testing.T, s *redisstore.Store, key string) { release(t, s, key, "a") }, false},
		"gone": {func(t *testing.T, _ *redisstore.Store, key string) {
			redistest.Shared(t).Do(t, "DEL", entryName(key))
		}, false},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			require.Equal(t, tt.ok, meet(t, p, tt.happens))
			e := must.Entry(t)(overClient(t, redistest.Shared(t).Addr(), nil).Get(t.Context(), keyFor(t)))
			require.Equal(t, tt.ok, bytes.Equal(large, e.Receipt))
			require.Equal(t, tt.ok, e.State == lock.Settled)
			if name == "gone" {
				gone := func() bool { return len(redistest.Shared(t).Keys(t, nameOf(t))) == 0 }
				require.Eventually(t, gone, patience, time.Millisecond, "nothing is left")
			}
		})
	}
	parallel.Run(t, "must fail: the receipt is set whatever the script has found", func(t *testing.T) {
		p := respproxy.Start(t, redistest.Shared(t).Addr())
		p.On(respproxy.Match{Name: "set", Func: func(args [][]byte) bool { return len(args[2]) > len(large) }},
			respproxy.Translate(func(args [][]byte) [][]byte { return slices.Concat(args[:3], args[4:]) }, nil))
		meet(t, p, func(t *testing.T, s *redisstore.Store, key string) {
			release(t, s, key, "a")
			take(t, s, key, whole("b"))
		})
		e := must.Entry(t)(overClient(t, redistest.Shared(t).Addr(), nil).Get(t.Context(), keyFor(t)))
		require.Equal(t, large, e.Receipt, "the cases above would not have found it")
	})
}

// meet settles a large receipt through p. Something happens before the second transaction begins.
func meet(t *testing.T, p *respproxy.Proxy, happens func(t *testing.T, s *redisstore.Store, key string)) bool {
	t.Helper()
	direct := overClient(t, redistest.Shared(t).Addr(), nil)
	through := overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = patience, patience })
	take(t, direct, keyFor(t), whole("a"))
	second := p.On(respproxy.Match{Name: "eval", Key: nameOf(t)}, respproxy.Hold())
	var ok bool
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		ok, err = through.Settle(timeout(t, patience), keyFor(t), lock.Claim{Token: "a"}, large, time.Hour)
	}()
	second.Wait(t, 1)
	happens(t, direct, keyFor(t))
	second.Remove()
	second.Deliver(t)
	<-done
	require.NoError(t, err)
	return ok
}

// Where the server has no transactions for this user, or no memory, the script settles a large receipt.
func TestLargeReceiptWithoutTransactions(t *testing.T) {
	t.Parallel()
	through := func(name string, skip int, action respproxy.Action) func(t *testing.T) (*redistest.Server, *redisstore.Store) {
		return func(t *testing.T) (*redistest.Server, *redisstore.Store) {
			srv := redistest.Shared(t)
			p := respproxy.Start(t, srv.Addr())
			p.On(respproxy.Match{Name: name, Skip: skip}, action)
			return srv, overClient(t, p.Addr(), nil)
		}
	}
	without := func(rules string) func(t *testing.T) (*redistest.Server, *redisstore.Store) {
		return func(t *testing.T) (*redistest.Server, *redisstore.Store) {
			srv := redistest.Start(t)
			allow(t, srv, "u", "~* &* +@all", rules)
			return srv, overClient(t, srv.Addr(), as("u"))
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
			srv := redistest.Shared(t)
			return srv, redisstore.New(struct{ redis.UniversalClient }{redistest.Client(t, srv)})
		},
		"no right to MULTI":           without("-multi"),
		"no right to EXEC":            without("-exec"),
		"no right to EXEC or DISCARD": without("-exec -discard"),
		"no memory": func(t *testing.T) (*redistest.Server, *redisstore.Store) {
			srv := redistest.Start(t)
			return srv, overClient(t, srv.Addr(), nil)
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
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
			e := must.Entry(t)(s.Get(t.Context(), keyFor(t)))
			require.Equal(t, large, e.Receipt)
			require.Equal(t, "a", e.Token)
			require.True(t, settled(t, s, "a"), "no transaction is left open")
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
		parallel.Run(t, name, func(t *testing.T) {
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
			require.Equal(t, large, must.Entry(t)(s.Get(t.Context(), keyFor(t))).Receipt)
		})
	}
}

// A receipt that is too long for the server or a proxy is refused for good, and the work counts as done.
func TestReceiptThatIsTooLong(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *redisstore.Store{
		"server": func(t *testing.T) *redisstore.Store {
			return open(t, redistest.Start(t, "--proto-max-bulk-len", "1mb").URL())
		},
		"server, through the client": func(t *testing.T) *redisstore.Store {
			return redisstore.New(unknownClient{redistest.Client(t, redistest.Start(t, "--proto-max-bulk-len", "1mb"))})
		},
		"proxy that reads no further": func(t *testing.T) *redisstore.Store {
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			p.On(respproxy.Match{Func: func(args [][]byte) bool {
				return slices.ContainsFunc(args, func(arg []byte) bool { return len(arg) > 1<<20 })
			}}, respproxy.Drop(respproxy.Reset))
			return overClient(t, p.Addr(), nil)
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			l := lockerOf(t, start(t))
			answer := bytes.Repeat(large, 5)
			work := func(context.Context) ([]byte, error) { return answer, nil }
			require.Equal(t, string(answer), must.Run(t)(l.Once(t.Context(), keyFor(t), nil, work)))
			require.Empty(t, must.Replay(t)(l.Once(t.Context(), keyFor(t), nil, work)))
			require.Zero(t, l.Stats().Backlog)
		})
	}
}
