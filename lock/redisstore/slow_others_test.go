package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// slowKeys makes the commands on some keys slow, and does not change commands on other keys.
type slowKeys func(p *respproxy.Proxy, o *redis.Options, pass func()) redis.Hook

const slowKey = "unlucky"

// keyHook runs a function before commands on slow keys, and before pipelines that
// have one.
type keyHook struct {
	hookOf

	pass func()
}

func (h keyHook) meet(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if strings.Contains(fmt.Sprint(cmd.Args()...), slowKey) {
			h.pass()
			return
		}
	}
}

func (h keyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.meet(cmd); return next(ctx, cmd) }
}

func (h keyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { h.meet(cmds...); return next(ctx, cmds) }
}

func onSlowKeys(action respproxy.Action) slowKeys {
	return func(p *respproxy.Proxy, _ *redis.Options, _ func()) redis.Hook {
		p.On(respproxy.Match{Func: func(args [][]byte) bool {
			return bytes.Contains(bytes.Join(args, nil), []byte(slowKey))
		}}, action)
		return nil
	}
}

// Calls that hang do not block calls for other keys beyond their own budgets. When the hanging
// calls have given up, other calls are granted again, even if sent commands still hang.
func TestSlowCallsLeaveOthersTheirBudgets(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick|testmain.NewerServers, "waits for calls that hang")
	t.Parallel()
	kinds := clientKinds(t)
	for what, slow := range map[string]slowKeys{
		"hooks":      func(_ *respproxy.Proxy, _ *redis.Options, pass func()) redis.Hook { return keyHook{pass: pass} },
		"no replies": onSlowKeys(respproxy.Swallow(respproxy.Hang)),
		"not sent":   onSlowKeys(respproxy.Drop(respproxy.Hang)),
		"late":       onSlowKeys(respproxy.DelayReply(slowFor)),
	} {
		for name, kind := range kinds {
			if kind.hooked && what != "hooks" {
				continue
			}
			for _, callers := range []int{1, 8, 64} {
				t.Run(fmt.Sprintf("%s/%s/%d", what, name, callers), func(t *testing.T) {
					t.Parallel()
					p, late := respproxy.Start(t, kind.server), watchLateness(t)
					d := newDelay(slowFor, late)
					d.armed.Store(true)
					var o redis.Options
					if !kind.opaque { // which gives up a connection when its own time is over
						o.ReadTimeout, o.WriteTimeout = -2, -2
					}
					hook := slow(p, &o, d.pass)
					client := kind.client(t, p, o, hook)
					l := lock.New(redisstore.New(client), lock.WithBudget(slowBudget), lock.WithLogger(slog.New(slog.DiscardHandler)))
					others := &others{locker: l, late: late, ended: make(chan struct{})}
					var slowCalls pending
					t.Cleanup(func() {
						close(d.lifted)
						p.Down() // which ends commands that hang
						others.calls.Wait()
						slowCalls.within(patience)
						_ = l.Close(timeout(t, slowBudget))
						_ = client.Close()
					})

					require.Eventually(t, func() bool { return others.granted(keyFor(t)) }, patience, time.Millisecond)
					slowCalls = others.begin(t, callers)
					late.wait(slowCalls.done, watched)
					close(others.ended)
					require.True(t, inBackground(others.calls.Wait).within(patience), "calls of other keys that hang")
					require.Empty(t, others.tooLate())
					require.True(t, late.eventually(func() bool { return others.granted(keyFor(t)) }, 5*time.Second))
				})
			}
		}
	}
}

// others are calls of other keys than slow ones.
type others struct {
	locker *lock.Locker
	late   *lateness
	calls  sync.WaitGroup
	ended  chan struct{} // closed when no more calls may begin

	mu   sync.Mutex
	took []time.Duration // the times of the calls that returned late
}

// begin begins such calls, and one for each of some callers of slow keys, which it
// returns.
func (o *others) begin(t *testing.T, callers int) (slow pending) {
	t.Helper()
	var unlucky sync.WaitGroup
	for n := range callers {
		unlucky.Go(func() {
			_, _ = o.locker.Acquire(context.Background(), lock.Key("slow", slowKey, keyFor(t), fmt.Sprint(n)))
		})
	}
	for n := range 8 {
		o.calls.Go(func() {
			for {
				select {
				case <-o.ended:
					return
				default:
					o.granted(fmt.Sprintf("%s&%d", keyFor(t), n))
				}
			}
		})
	}
	return inBackground(unlucky.Wait)
}

// granted acquires key and releases it.
func (o *others) granted(key string) bool {
	var e *lock.Lease
	o.timed(func() { e, _ = o.locker.Acquire(context.Background(), key) })
	o.timed(func() { _ = e.Release(context.Background()) })
	return e != nil
}

func (o *others) timed(call func()) {
	began, late := time.Now(), o.late.load()
	call()
	if took := time.Since(began) - (o.late.load() - late); took > slowBound {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.took = append(o.took, took)
	}
}

func (o *others) tooLate() []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.took
}
