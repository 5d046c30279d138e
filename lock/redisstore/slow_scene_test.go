package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
)

// The budget of every call, and the time after which a call with the whole budget must have
// returned on a busy machine. The slow parts, of client and server, last for watched, or until all
// calls have returned.
const (
	slowBudget = 200 * time.Millisecond
	slowBound  = 2*slowBudget + time.Second
	slowFor    = 2 * time.Second
	watched    = 2300 * time.Millisecond
)

// slowScene is one slow row with all calls over it: each operation by each number
// of callers has its own client.
type slowScene struct {
	proxy *respproxy.Proxy
	delay *delay
	cells []*slowCell
	late  *lateness
	begun goroutines
}

// slowCell is one operation over one client.
type slowCell struct {
	op      slowOp
	callers int
	client  redis.UniversalClient
	store   lock.Store
	calls   []func() error
	close   []func(context.Context) // closes the parts that each client has made

	mu    sync.Mutex
	took  []time.Duration
	wrong []error // errors that a store that is slow cannot be the cause of
}

func (s *slowScene) clients() []redis.UniversalClient {
	all := make([]redis.UniversalClient, len(s.cells))
	for i, c := range s.cells {
		all[i] = c.client
	}
	return all
}

// play makes calls over a slow client and returns the violations.
func (r *slowRow) play(t *testing.T, kind clientKind, over func(redis.UniversalClient) lock.Store, callers ...int) (violations []string) {
	t.Helper()
	late := watchLateness(t)
	s := &slowScene{proxy: respproxy.Start(t, kind.server), delay: newDelay(slowFor, late), late: late}
	if r.hangs {
		s.delay.long = 0
	}
	s.begun = labelGoroutines(t)
	for op, start := range slowOps {
		if r.cold && op.ofLease() {
			continue
		}
		for _, n := range callers {
			s.add(t, r, kind, over, op, n, start)
		}
	}

	if r.reconnects {
		s.reconnect(t)
	}
	s.delay.armed.Store(true)
	end := func() {}
	if r.begin != nil {
		end = r.begin(t, s)
	}
	all := s.call()
	late.wait(all.done, watched)
	close(s.delay.lifted)
	end()
	require.True(t, all.within(patience), "calls that do not even return when nothing is slow any more")

	violations = append(violations, s.judge()...)
	s.close(t)
	return append(violations, s.begun.left()...)
}

func (s *slowScene) add(t *testing.T, r *slowRow, kind clientKind, over func(redis.UniversalClient) lock.Store, op slowOp, callers int, start slowStart) {
	t.Helper()
	var o redis.Options
	if r.set != nil {
		r.set(&o, s.delay.pass)
	}
	var hook redis.Hook
	if r.hook != nil {
		hook = r.hook(s.delay.pass)
	}
	c := &slowCell{op: op, callers: callers, client: kind.client(t, s.proxy, o, hook)}
	store := over(c.client)
	c.store = store
	s.cells = append(s.cells, c)
	if !r.cold {
		_, err := store.Get(timeout(t, patience), "warm")
		require.NoError(t, err)
	}
	w := &slowWork{row: r, store: store, callers: callers}
	w.locker = w.newLocker(c)
	for n := range callers {
		call := start(t, w, c, lock.Key("slow", keyFor(t), string(op), fmt.Sprint(callers), fmt.Sprint(n)))
		if call != nil { // the store can do it
			c.calls = append(c.calls, call)
		}
	}
}

// pending has the calls that were begun in the background.
type pending struct{ done chan struct{} }

func inBackground(f func()) pending {
	p := pending{make(chan struct{})}
	go func() {
		defer close(p.done)
		f()
	}()
	return p
}

func (p pending) within(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

// call begins all calls, all at once.
func (s *slowScene) call() pending {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for _, c := range s.cells {
		for _, call := range c.calls {
			wg.Go(func() {
				<-start
				began, late := time.Now(), s.late.load()
				err := call()
				c.note(time.Since(began)-(s.late.load()-late), err)
			})
		}
	}
	close(start)
	return inBackground(wg.Wait)
}

func (c *slowCell) note(took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took = append(c.took, took)
	if err != nil && c.op.ofLocker() && !errors.Is(err, lock.ErrUnavailable) {
		c.wrong = append(c.wrong, err)
	}
}

// judge returns the violations of the calls of each operation.
func (s *slowScene) judge() (violations []string) {
	late, wrong := make(map[slowOp][]string), make(map[slowOp]error)
	for _, c := range s.cells {
		if n, last := c.late(); n > 0 {
			late[c.op] = append(late[c.op], fmt.Sprintf("%d of %d, the last after %v", n, c.callers, last.Round(time.Millisecond)))
		}
		if len(c.wrong) > 0 {
			wrong[c.op] = c.wrong[0]
		}
	}
	for op, cells := range late {
		violations = append(violations, fmt.Sprintf("concurrent calls of %s that returned late: %s", op, strings.Join(cells, "; ")))
	}
	for op, err := range wrong {
		violations = append(violations, fmt.Sprintf("%s: %v", op, err))
	}
	return violations
}

// late returns the number of calls that returned late, and the duration of the last one.
func (c *slowCell) late() (n int, last time.Duration) {
	for _, took := range c.took {
		last = max(last, took)
		if took > slowBound {
			n++
		}
	}
	return n, last
}

// reconnect ends all connections; new ones are welcome.
func (s *slowScene) reconnect(t *testing.T) {
	t.Helper()
	s.proxy.Down()
	s.begun.without(func() { s.proxy.Up(t) })
}

func (s *slowScene) close(t *testing.T) {
	t.Helper()
	var wg sync.WaitGroup
	for _, c := range s.cells {
		wg.Go(func() {
			for _, end := range c.close {
				end(timeout(t, slowBudget))
			}
			if store, ok := c.store.(io.Closer); ok {
				_ = store.Close()
			}
			_ = c.client.Close()
		})
	}
	wg.Wait()
}

// slowWork is shared by the calls of one cell.
type slowWork struct {
	row     *slowRow
	store   lock.Store
	locker  *lock.Locker
	callers int
}

func (w *slowWork) newLocker(c *slowCell) *lock.Locker {
	l := lock.New(w.store, lock.WithBudget(slowBudget), lock.WithLease(time.Minute), lock.WithLogger(slog.New(slog.DiscardHandler)))
	c.close = append(c.close, func(ctx context.Context) { _ = l.Close(ctx) })
	return l
}
