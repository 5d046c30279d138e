package redisstore_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
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
	client := srv.Client(t)
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

func must(t *testing.T, want, ok bool, err error) {
	t.Helper()
	require.NoError(t, err)
	require.Equal(t, want, ok)
}

// A plain holder renews, settles and releases by one command each, which leaves the same entry as
// the script.
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
					ok, err := s.Renew(t.Context(), key, c)
					must(t, true, ok, err)
					e, err := s.Get(t.Context(), key)
					require.NoError(t, err)
					require.InDelta(t, time.Hour, e.Left, float64(time.Minute))
					ok, err = s.Settle(t.Context(), key, c, receipt, 2*time.Hour)
					must(t, true, ok, err)
					e, err = s.Get(t.Context(), key)
					require.NoError(t, err)
					require.InDelta(t, 2*time.Hour, e.Left, float64(time.Minute))
					e.Left = 0
					left = append(left, e)
				}
				require.Equal(t, left[1], left[0])
			}
			take(t, native, "released", known("a"))
			ok, err := native.Release(t.Context(), "released", known("a"))
			must(t, true, ok, err)
			require.Zero(t, srv.Do(t, "EXISTS", "latch:lock:released"))
			require.Equal(t, 1, p.Commands(k.deletes))
			require.Zero(t, p.Commands("multi"), "a large receipt needs no transaction")
			require.Equal(t, 2*len(receipts)+1, scripts(p), "Get is one, once with its source")
		})
	}
}

// Another value than the claim's says nothing of the token. The script decides, and the
// outcome is the same.
func TestNotEqualIsDecidedByTheScript(t *testing.T) {
	t.Parallel()
	longer, fenced := known("a"), known("a")
	longer.Linger, fenced.Fenced = 2*time.Hour, true
	renew := func(c lock.Claim) func(*testing.T, *redisstore.Store, string) {
		return func(t *testing.T, s *redisstore.Store, key string) {
			t.Helper()
			ok, err := s.Renew(t.Context(), key, c)
			must(t, true, ok, err)
		}
	}
	for name, tt := range map[string]struct {
		first   lock.Claim
		then    func(t *testing.T, s *redisstore.Store, key string)
		settled bool // the token has left a receipt
		ok      bool // it holds the key
	}{
		"a longer linger":           {first: known("a"), then: renew(longer), ok: true},
		"a fence":                   {first: fenced, ok: true},
		"another owner":             {first: claim("a"), ok: true},
		"another token":             {first: known("b")},
		"a token that begins so":    {first: known("ab")},
		"an earlier holder's fence": {first: known("a"), ok: true},
		"settled": {first: known("a"), settled: true, then: func(t *testing.T, s *redisstore.Store, key string) {
			t.Helper()
			ok, err := s.Settle(t.Context(), key, known("a"), []byte("first"), time.Hour)
			must(t, true, ok, err)
		}},
		"released": {first: known("a"), then: func(t *testing.T, s *redisstore.Store, key string) {
			t.Helper()
			ok, err := s.Release(t.Context(), key, known("a"))
			must(t, true, ok, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			s, _ := valkey.behind(t, srv)
			prepare := func(key string) lock.Entry {
				if name == "an earlier holder's fence" {
					take(t, s, key, fenced)
					release(t, s, key, "a")
				}
				take(t, s, key, tt.first)
				if tt.then != nil {
					tt.then(t, s, key)
				}
				e, err := s.Get(t.Context(), key)
				require.NoError(t, err)
				return e
			}
			unchanged := func(key string, before lock.Entry) {
				e, err := s.Get(t.Context(), key)
				require.NoError(t, err)
				e.Left, before.Left = 0, 0
				require.Equal(t, before, e)
			}

			before := prepare("released")
			ok, err := s.Release(t.Context(), "released", known("a"))
			must(t, tt.ok, ok, err)
			if tt.ok {
				before = lock.Entry{}
			}
			unchanged("released", before)

			before = prepare("renewed")
			ok, err = s.Renew(t.Context(), "renewed", known("a"))
			must(t, tt.ok, ok, err)
			unchanged("renewed", before)

			before = prepare("settled")
			ok, err = s.Settle(t.Context(), "settled", known("a"), []byte("second"), time.Hour)
			must(t, tt.ok || tt.settled, ok, err)
			if tt.ok {
				before.State, before.Receipt = lock.Settled, []byte("second")
			}
			unchanged("settled", before)
		})
	}
}

// A lease is compared by the script, and waiters are notified by it.
func TestWhatOnlyScriptsDo(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, p := valkey.behind(t, srv)
	long, short := known("a"), known("a")
	long.Lease, short.Longest = time.Hour, false
	take(t, s, "k", long)
	ok, err := s.Renew(t.Context(), "k", short)
	must(t, true, ok, err)
	e, err := s.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Greater(t, e.Left, 50*time.Minute, "a shorter lease leaves the longer one")

	notifying, q := valkey.behind(t, srv, redisstore.WithNotifications())
	wake, stop := notifying.Watch("k")
	defer stop()
	hears(t, wake) // the subscription is there
	ok, err = notifying.Release(t.Context(), "k", long)
	must(t, true, ok, err)
	hears(t, wake)
	take(t, notifying, "k", known("b"))
	ok, err = notifying.Settle(t.Context(), "k", known("b"), nil, time.Hour)
	must(t, true, ok, err)

	fenced := known("c")
	fenced.Fenced = true
	take(t, s, "fenced", fenced)
	ok, err = s.Release(t.Context(), "fenced", fenced)
	must(t, true, ok, err)
	require.Zero(t, p.Commands("delifeq")+q.Commands("delifeq"))

	take(t, s, "full", known("a"))
	srv.Do(t, "CONFIG", "SET", "maxmemory", "1")
	ok, err = s.Renew(t.Context(), "full", known("a"))
	must(t, true, ok, err)
	ok, err = s.Settle(t.Context(), "full", known("a"), []byte("receipt"), time.Hour)
	must(t, true, ok, err)
}

// The store tries a command once to learn whether a server has it. An unknown command has no
// effect, and the script follows at once, also after a failover to a server of another kind.
func TestAServersCommandsAreLearned(t *testing.T) {
	t.Parallel()
	s, p := redis8.behind(t, redistest.Start(t))
	cycle := func(key string) {
		take(t, s, key, known("a"))
		ok, err := s.Renew(t.Context(), key, known("a"))
		must(t, true, ok, err)
		ok, err = s.Release(t.Context(), key, known("a"))
		must(t, true, ok, err)
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
	ok, err := s.Release(t.Context(), "proxied", known("a"))
	must(t, true, ok, err)

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
			ok, err := s.Release(t.Context(), "2", known("a"))
			must(t, true, ok, err)
			err = <-asked
			require.Error(t, err)
			require.NotErrorIs(t, err, lock.ErrNotApplied)
			ok, err = s.Release(t.Context(), "1", known("a"))
			must(t, name != "applied and closed", ok, err)
			ok, err = s.Release(t.Context(), "3", known("a"))
			must(t, true, ok, err)
			require.Equal(t, 1, rule.Hits())
		})
	}
}

// A command that a user may not run is not tried again, and is logged once. The store needs no
// permission that older servers do not know.
func TestNativeCommandsNeedNoPermission(t *testing.T) { //nolint:paralleltest // it reads the log of the process
	var log lines
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	s, p := redis8.behind(t, redistest.Start(t))
	rule := p.On(respproxy.Match{Name: "delex"}, respproxy.ReplyError("NOPERM User u has no permissions to run the 'delex' command"))
	for range 3 {
		take(t, s, "k", known("a"))
		ok, err := s.Renew(t.Context(), "k", known("a"))
		must(t, true, ok, err)
		ok, err = s.Release(t.Context(), "k", known("a"))
		must(t, true, ok, err)
	}
	require.Equal(t, 1, rule.Hits())
	require.Equal(t, 3+1, scripts(p), "the user may replace, and a renewal does")
	require.Equal(t, 1, strings.Count(log.String(), "level=INFO"), log.String())
	require.Contains(t, log.String(), "command=delex")
}

// lines has the lines of the log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
