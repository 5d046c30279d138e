package redisstore_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	"github.com/httplatch/httplatch/lock/sealed"
)

// kind is a kind of server that compares and acts by itself: the command that it deletes with, and
// the command that it does not know.
type kind struct{ deletes, unknown string }

var (
	valkey = kind{"delifeq", "delex"}
	redis8 = kind{"delex", "delifeq"}

	kinds = map[string]kind{"Valkey": valkey, "Redis": redis8}
)

const (
	unknownCommand = "ERR unknown command 'x', with args beginning with: "

	deleteIfEqual  = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`
	replaceIfEqual = `if redis.call('get', KEYS[1]) == ARGV[2] then return redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[3]) end return false`
)

// of makes a server of any version act like kind. Where make test-servers runs the tests, the
// server's own commands are used.
func (k kind) of(t *testing.T, srv *redistest.Server) *respproxy.Proxy {
	t.Helper()
	p := respproxy.Start(t, srv.Addr())
	p.On(respproxy.Match{Name: k.unknown}, respproxy.ReplyError(unknownCommand))
	client := redistest.Client(t, srv)
	has := func(args ...any) bool {
		err := client.Do(t.Context(), args...).Err()
		return err == nil || errors.Is(err, redis.Nil)
	}
	script := func(source string, args ...[]byte) [][]byte {
		return append([][]byte{[]byte("eval"), []byte(source), []byte("1")}, args...)
	}
	if k == valkey && !has("delifeq", "latch:none", "") || k == redis8 && !has("delex", "latch:none", "ifeq", "") {
		p.On(respproxy.Match{Name: k.deletes}, respproxy.Translate(func(args [][]byte) [][]byte {
			return script(deleteIfEqual, args[1], args[len(args)-1])
		}, nil))
	}
	if !has("set", "latch:none", "", "ifeq", "", "px", 1) {
		p.On(respproxy.Match{Name: "set", Func: ifEqual}, respproxy.Translate(func(args [][]byte) [][]byte {
			return script(replaceIfEqual, args[1], args[2], args[4], args[6])
		}, nil))
	}
	return p
}

// behind returns a store on a server of this kind, and the proxy before it, for faults.
func (k kind) behind(t *testing.T, srv *redistest.Server, opts ...redisstore.Option) (*redisstore.Store, *respproxy.Proxy) {
	t.Helper()
	p := respproxy.Start(t, k.of(t, srv).Addr())
	return open(t, p.URL(), append(opts, redisstore.WithoutCheck())...), p
}

func ifEqual(args [][]byte) bool { return len(args) == 7 && strings.EqualFold(string(args[3]), "ifeq") }

// older makes p answer like a server that has none of these commands.
func older(p *respproxy.Proxy) {
	p.On(respproxy.Match{Name: "delifeq|delex"}, respproxy.ReplyError(unknownCommand))
	p.On(respproxy.Match{Name: "set", Func: ifEqual}, respproxy.ReplyError("ERR syntax error"))
}

// known is a claim as the Locker makes it, which ends and renews it with the same.
func known(token string) lock.Claim {
	c := claim(token)
	c.Fingerprint, c.Owner, c.Linger, c.Longest = []byte("print"), "host-1", time.Hour, true
	return c
}

// scripts returns the number of scripts that were sent through p.
func scripts(p *respproxy.Proxy) int { return p.Commands("evalsha") + p.Commands("eval") }

// A plain holder renews, settles and releases by one command each, with the same entry as by the script.
func TestNativeCommands(t *testing.T) {
	t.Parallel()
	receipts := map[string][]byte{
		"short": []byte("receipt"), "none": nil, "large": bytes.Repeat([]byte("x"), largeReceipt), strings.Repeat("k", 300): []byte("of a hash"),
	}
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			native, p := k.behind(t, srv)
			scripted, q := k.behind(t, redistest.Start(t))
			older(q)
			for key, receipt := range receipts {
				var left []lock.Entry
				for _, s := range []*redisstore.Store{native, scripted} {
					c := known("a")
					take(t, s, key, c)
					c.Lease = time.Hour
					must.Yes(t)(s.Renew(t.Context(), key, c))
					e := must.Entry(t)(s.Get(t.Context(), key))
					require.InDelta(t, time.Hour, e.Left, float64(time.Minute))
					must.Yes(t)(s.Settle(t.Context(), key, c, receipt, 2*time.Hour))
					e = must.Entry(t)(s.Get(t.Context(), key))
					require.InDelta(t, 2*time.Hour, e.Left, float64(time.Minute))
					e.Left = 0
					left = append(left, e)
				}
				require.Equal(t, left[1], left[0])
			}
			take(t, native, "released", known("a"))
			must.Yes(t)(native.Release(t.Context(), "released", known("a")))
			require.Zero(t, srv.Do(t, "EXISTS", "latch:lock:released"))
			require.Equal(t, 1, p.Commands(k.deletes))
			require.Zero(t, p.Commands("multi"), "a large receipt needs no transaction")
			require.Equal(t, 2*len(receipts)+1, scripts(p), "Get is one, once with its source")
		})
	}
}

// Waiters are notified by the script, and it needs no memory.
func TestWhatOnlyScriptsDo(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, p := valkey.behind(t, srv, redisstore.WithNotifications())
	take(t, s, "k", known("a"))
	wake, stop := s.Watch("k")
	defer stop()
	hears(t, wake) // the subscription is there
	must.Yes(t)(s.Release(t.Context(), "k", known("a")))
	hears(t, wake)
	take(t, s, "k", known("b"))
	must.Yes(t)(s.Settle(t.Context(), "k", known("b"), nil, time.Hour))
	require.Zero(t, p.Commands("delifeq"))

	s, _ = valkey.behind(t, srv)
	take(t, s, "full", known("a"))
	srv.Do(t, "CONFIG", "SET", "maxmemory", "1")
	must.Yes(t)(s.Renew(t.Context(), "full", known("a")))
	must.Yes(t)(s.Settle(t.Context(), "full", known("a"), []byte("receipt"), time.Hour))
}

// The store tries a command once to learn whether a server has it. An unknown command has no
// effect, and the script follows at once, also after a failover to a server of another kind.
func TestAServersCommandsAreLearned(t *testing.T) {
	t.Parallel()
	s, p := redis8.behind(t, redistest.Start(t))
	cycle := func(key string) {
		take(t, s, key, known("a"))
		must.Yes(t)(s.Renew(t.Context(), key, known("a")))
		must.Yes(t)(s.Release(t.Context(), key, known("a")))
	}
	for range 3 {
		cycle("new")
	}
	require.Equal(t, []int{0, 3, 0}, []int{scripts(p), p.Commands("delex"), p.Commands("eval")})
	older(p)
	cycle("older")
	require.Equal(t, 2+2, scripts(p), "by the hash, which the server did not know, and by the source")
	cycle("older")
	require.Equal(t, 2+2+2, scripts(p))
	require.Equal(t, 3, p.Commands("delex"), "it is not asked again at once")
	p.Clear()
	cycle("newer again")
	require.Equal(t, 3, p.Commands("delex"))

	s, p = redis8.behind(t, redistest.Start(t))
	cycle("new")
	p.On(respproxy.Match{Name: "delex"}, respproxy.ReplyError("unsupported command 'delex'")) // a proxy in between
	take(t, s, "proxied", known("a"))
	_, err := s.Release(t.Context(), "proxied", known("a"))
	requireUnknown(t, err, "reply")
	must.Yes(t)(s.Release(t.Context(), "proxied", known("a")))

	s, p = valkey.behind(t, redistest.Start(t)) // an older server from the start
	older(p)
	for range 3 {
		cycle("old")
	}
	require.Equal(t, 3*2+2, scripts(p))
}

// An unknown command can do more than be refused: a proxy in between may have its own
// words for it, or close the connection. It is sent by one caller, and not again soon.
func TestAskingHitsOneCaller(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]respproxy.Action{
		"its own words":      respproxy.ReplyError("unsupported command 'DELIFEQ'"),
		"closes":             respproxy.Drop(respproxy.Close),
		"hangs":              respproxy.Drop(respproxy.Hang),
		"applied and closed": respproxy.Swallow(respproxy.Close),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := valkey.behind(t, redistest.Start(t))
			rule := p.On(respproxy.Match{Name: "delifeq"}, action)
			for _, key := range []string{"1", "2", "3"} {
				take(t, s, key, known("a"))
			}
			asked := make(chan error, 1)
			go func() {
				_, err := s.Release(timeout(t, time.Second), "1", known("a"))
				asked <- err
			}()
			rule.Wait(t, 1)
			must.Yes(t)(s.Release(t.Context(), "2", known("a")))
			err := <-asked
			require.Error(t, err)
			require.NotErrorIs(t, err, lock.ErrNotApplied)
			ok := must.Get(s.Release(t.Context(), "1", known("a")))(t)
			require.Equal(t, name != "applied and closed", ok)
			must.Yes(t)(s.Release(t.Context(), "3", known("a")))
			require.Equal(t, 1, rule.Hits())
		})
	}
}

// A command that a user may not run is not tried again, and is logged once. The store needs no
// permission that older servers do not know.
func TestNativeCommandsNeedNoPermission(t *testing.T) { //nolint:paralleltest // it reads the log of the process
	log := logTo(t)
	s, p := redis8.behind(t, redistest.Start(t))
	rule := p.On(respproxy.Match{Name: "delex"}, respproxy.ReplyError("NOPERM User u has no permissions to run the 'delex' command"))
	for range 3 {
		take(t, s, "k", known("a"))
		must.Yes(t)(s.Renew(t.Context(), "k", known("a")))
		must.Yes(t)(s.Release(t.Context(), "k", known("a")))
	}
	require.Equal(t, 1, rule.Hits())
	require.Equal(t, 3+1, scripts(p), "the user may replace, and a renewal does")
	require.Equal(t, 1, log.Count("level=INFO"))
	require.Equal(t, 1, log.Count("command=delex"))
}

// TestNativeCommandsUnderASeal: an entry whose owner is sealed has another value than its claim. The script alone is sent.
func TestNativeCommandsUnderASeal(t *testing.T) {
	t.Parallel()
	native, p := valkey.behind(t, redistest.Start(t))
	s := sealed.New(native, must.Get(cipher.NewGCMWithRandomNonce(must.Get(aes.NewCipher(make([]byte, 32)))(t)))(t))
	for n, owner := range []string{"host-1\x1frequest", "host-1"} {
		for op, end := range map[string]func(c lock.Claim) (bool, error){
			"renew":   func(c lock.Claim) (bool, error) { return s.Renew(t.Context(), c.Token, c) },
			"settle":  func(c lock.Claim) (bool, error) { return s.Settle(t.Context(), c.Token, c, nil, time.Hour) },
			"release": func(c lock.Claim) (bool, error) { return s.Release(t.Context(), c.Token, c) },
		} {
			c := known(op + owner)
			c.Owner = owner
			take(t, s, c.Token, c)
			before, scripted := p.Commands("set")+p.Commands("delifeq"), p.Commands("evalsha")
			must.Yes(t)(end(c))
			require.Equal(t, []int{n, 1 - n}, []int{p.Commands("set") + p.Commands("delifeq") - before, p.Commands("evalsha") - scripted}, op)
		}
	}
}
