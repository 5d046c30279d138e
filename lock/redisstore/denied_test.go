package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// refusals are a server's replies instead of executing a command, and whether
// the same command, sent again within a budget, may be executed.
var refusals = []struct {
	text     string
	class    string
	may      bool
	full     bool
	repaired string // a word of the cure
}{
	{text: "OOM command not allowed when used memory > 'maxmemory'.", class: "OOM", full: true, repaired: "maxmemory"},
	{text: "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", class: "MISCONF", repaired: "see its log"},
	{text: "NOREPLICAS Not enough good replicas to write.", class: "NOREPLICAS", repaired: "min-replicas-to-write"},
	{text: "NOPERM this user has no permissions to run the 'set' command", class: "NOPERM", repaired: "+set"},
	{text: "NOAUTH Authentication required.", class: "NOAUTH", repaired: "password"},
	{text: "WRONGPASS invalid username-password pair or user is disabled.", class: "WRONGPASS", repaired: "is wrong"},
	{text: "WRONGTYPE Operation against a key holding the wrong kind of value", class: "WRONGTYPE", repaired: "WithPrefix"},
	{text: "ERR unknown command 'set', with args beginning with: 'latch:lock:k' ", class: "command", repaired: "renamed"},
	{text: "READONLY You can't write against a read only replica.", class: "READONLY", may: true},
	{text: "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", class: "MASTERDOWN", may: true},
	{text: "LOADING Redis is loading the dataset in memory", class: "LOADING", may: true},
	{text: "CLUSTERDOWN The cluster is down", class: "CLUSTERDOWN", may: true},
	{text: "CROSSSLOT Keys in request don't hash to the same slot", class: "CROSSSLOT", may: true},
	{text: "TRYAGAIN Multiple keys request during rehashing of slot", class: "TRYAGAIN", may: true},
	{text: "MOVED 3999 127.0.0.1:6381", class: "MOVED", may: true},
	{text: "ASK 3999 127.0.0.1:6381", class: "ASK", may: true},
	{text: "BUSY Redis is busy running a script.", class: "BUSY", may: true},
}

// A refusal that the same command would get again ends the call at once, and is
// named in the error and the log. The others are tried again.
func TestDenialsAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range refusals {
		parallel.Run(t, tt.class, func(t *testing.T) {
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			var log bytes.Buffer
			budget := patience // no call may last so long
			if tt.may {
				budget = 2 * time.Second
			}
			l := lock.New(overClient(t, p.Addr(), nil), lock.WithLease(3*patience), lock.WithBudget(budget),
				lock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			rule := p.On(respproxy.Match{Name: "set"}, respproxy.ReplyError(tt.text))
			var err error
			var took time.Duration
			for range 10 { // a send in flight at the end of the time is unknown, which can happen on a busy machine
				began := time.Now()
				_, err = l.Acquire(t.Context(), keyFor(t))
				if took = time.Since(began); !tt.may || !errors.Is(err, lock.ErrUnknown) {
					break
				}
			}

			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.NotErrorIs(t, err, lock.ErrUnknown)
			require.Equal(t, tt.class, class(err), err)
			require.Equal(t, tt.full, errors.Is(err, lock.ErrFull))
			require.Contains(t, log.String(), "class="+tt.class)
			if tt.may {
				require.Greater(t, rule.Hits(), 1, "sent again")
			} else {
				require.Equal(t, 1, rule.Hits(), "sent once")
				require.Less(t, took, budget/2)
				require.NotContains(t, err.Error()+log.String(), "no answer")
				require.Contains(t, strings.ReplaceAll(log.String(), `\"`, `"`), tt.repaired)
			}
			rule.Remove()
			e := must.Get(l.With(lock.WithBudget(patience)).Acquire(t.Context(), keyFor(t)))(t)
			require.NoError(t, e.Release(t.Context()))
		})
	}
}

// Redis 6.2 wraps the refusal of a command in a script. It is the same refusal, and as certain. A program error is
// none: the commands before it were executed.
func TestRefusalsInScriptsOfRedis62(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	s := overClient(t, p.Addr(), nil)
	const call = "ERR Error running script (call to f_a5bf2e9062794ec979e7cd8098aaefde8f369d79): "
	for text, want := range map[string]string{
		call + "@user_script:9: @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.":           "OOM",
		call + "@user_script:9: @user_script: 9: -NOREPLICAS Not enough good replicas to write.":                     "NOREPLICAS",
		call + "@user_script:9: @user_script: 9: -READONLY You can't write against a read only replica.":             "READONLY",
		call + "@user_script:9: @user_script: 9: -MISCONF Redis is configured to save RDB snapshots.":                "MISCONF",
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
			require.NotContains(t, err.Error(), "script (call to", "the refusal is named, not its wrapping")
		}
		rule.Remove()
	}
}

// One cause has one class, in the log and in events, wherever calls wait and whatever ends their wait: else an
// operator looks for two faults.
func TestOneCauseHasOneClass(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "measures time")
	t.Parallel()
	for name, tt := range map[string]struct {
		begin func(*redistest.Server, *respproxy.Proxy)
		want  string
	}{
		"network hangs":    {func(_ *redistest.Server, p *respproxy.Proxy) { p.Freeze() }, "silent"},
		"server is halted": {func(s *redistest.Server, _ *respproxy.Proxy) { s.Stop() }, "silent"},
		"server is gone":   {func(_ *redistest.Server, p *respproxy.Proxy) { p.Down() }, "dial"},
	} {
		for _, callers := range []int{1, 100} {
			for _, deadline := range []time.Duration{time.Minute, time.Second} { // the end is the budget, or the caller's time
				parallel.Run(t, fmt.Sprintf("%s/%d callers/%v", name, callers, deadline), func(t *testing.T) {
					srv := redistest.Start(t)
					p := respproxy.Start(t, srv.Addr())
					store := must.Get(redisstore.Open(t.Context(), p.URL()))(t)
					t.Cleanup(func() { require.NoError(t, store.Close()) })
					var mu sync.Mutex
					var logged bytes.Buffer
					classes := make(map[string]bool)
					l := lock.New(store, lock.WithBudget(2*time.Second), lock.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))),
						lock.WithObserver(func(_ context.Context, e lock.Event) {
							if e.Kind == lock.EventUnknown || e.Kind == lock.EventUnavailable {
								mu.Lock()
								defer mu.Unlock()
								classes[class(e.Err)] = true
							}
						}))
					require.NoError(t, l.Do(t.Context(), "warm", func(context.Context) error { return nil }))

					tt.begin(srv, p)
					defer srv.Cont()
					defer p.Thaw()
					// In the first tenth of a second, silence cannot be distinguished from
					// overload.
					_ = l.Do(t.Context(), "first", func(context.Context) error { return nil })
					var all sync.WaitGroup
					for i := range callers {
						all.Go(func() {
							for j := range 2 {
								ctx, cancel := context.WithTimeout(t.Context(), deadline)
								_ = l.Do(ctx, fmt.Sprint("k", i, ".", j), func(context.Context) error { return nil })
								cancel()
							}
						})
					}
					all.Wait()
					p.Thaw()
					srv.Cont()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_ = l.Close(ctx)
					require.Equal(t, map[string]bool{tt.want: true}, classes, "of events")
					lines := make(map[string]bool)
					for _, m := range regexp.MustCompile(`class=(\S+)`).FindAllStringSubmatch(logged.String(), -1) {
						lines[m[1]] = true
					}
					require.Equal(t, map[string]bool{tt.want: true}, lines, "of the log: %s", logged.String())
				})
			}
		}
	}
}

// A caller that leaves is not the store's fault: there is no log line, and a separate class.
func TestCallersThatLeaveAreNotTheStoresFault(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	store := open(t, p.URL())
	var logged bytes.Buffer
	var got []string
	l := lock.New(store, lock.WithBudget(patience), lock.WithLease(3*patience), lock.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))),
		lock.WithObserver(func(_ context.Context, e lock.Event) {
			if e.Call == "claim" {
				got = append(got, class(e.Err))
			}
		}))
	p.Freeze()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	require.ErrorIs(t, l.Do(ctx, keyFor(t), func(context.Context) error { return nil }), context.Canceled)
	require.NotContains(t, logged.String(), "class=")
	require.Equal(t, []string{"cancelled"}, got)
	p.Thaw()
	require.NoError(t, l.Close(t.Context()))
}
