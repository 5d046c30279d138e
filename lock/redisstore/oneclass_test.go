package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// One cause has one class, in the log and in events, however many calls meet it, whether
// they wait for a reply, for a connection or in a queue, and whether their budget ends or
// the deadline of their context: else an operator looks for two faults.
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
				t.Run(fmt.Sprintf("%s/%d callers/%v", name, callers, deadline), func(t *testing.T) {
					t.Parallel()
					srv := redistest.Start(t)
					p := respproxy.Start(t, srv.Addr())
					store, err := redisstore.Open(t.Context(), p.URL())
					require.NoError(t, err)
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
