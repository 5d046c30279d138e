package rowstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Calls are the calls of a store that wait. A goroutine that serves them executes all that wait at
// once, so that they share round trips, commits and waits for the disk, and a server or a disk that
// does not answer holds up no caller for longer than its context. There is such a goroutine only
// while calls wait.
type Calls[T any] struct {
	// Serve executes calls once: it takes calls, and ends each. It is called until none waits.
	Serve   func(ctx context.Context)
	Servers int    // number of goroutines at most; each but the first only while calls wait for long
	Waits   *Queue // measures the waits, unless it is nil

	mu      sync.Mutex
	queue   []*Call[T]
	serving int            // number of goroutines
	running sync.WaitGroup // of the goroutines
	began   time.Time      // when Serve was called last
	watched bool           // help is called again
	closed  bool
}

// Call is a call that waits, or is executed.
type Call[T any] struct {
	Of  T
	Err error // its result; only after Done

	until time.Time // the deadline of its caller, zero if it has none
	done  chan struct{}
}

// stuck is the time after which a call that waits gets another goroutine, if there may be one more.
// Fewer goroutines execute more calls at once.
const stuck = 20 * time.Millisecond

// ErrClosed is the error of Enter after Close.
var ErrClosed = errors.New("the store was closed")

// Enter adds a call, and returns when it is done, or has begun and ctx has ended. After an error, the
// call is never executed.
func (q *Calls[T]) Enter(ctx context.Context, of T) (*Call[T], error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c := &Call[T]{Of: of, done: make(chan struct{})}
	c.until, _ = ctx.Deadline()
	if !q.join(ctx, c) {
		return nil, ErrClosed
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if q.leave(c) {
			return nil, context.Cause(ctx)
		}
	}
	return c, nil
}

// join adds a call to the queue. It reports whether the store is open.
func (q *Calls[T]) join(ctx context.Context, c *Call[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.Waits.change(+1, false)
	q.queue = append(q.queue, c)
	if ctx = context.WithoutCancel(ctx); q.serving > 0 {
		q.help(ctx)
	} else {
		q.start(ctx)
	}
	return true
}

// leave takes a call back, and reports whether it waited: it is false if the call has begun.
func (q *Calls[T]) leave(c *Call[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(q.queue, c)
	if at < 0 {
		return false
	}
	q.queue = slices.Delete(q.queue, at, at+1)
	q.Waits.change(-1, false)
	return true
}

// start starts a goroutine.
func (q *Calls[T]) start(ctx context.Context) {
	q.serving++
	q.began = time.Now()
	q.running.Go(func() {
		for q.more() {
			q.Serve(ctx)
		}
	})
}

// help starts another goroutine after a while if calls still wait: a connection or a server may not
// answer, and no other call may come.
func (q *Calls[T]) help(ctx context.Context) {
	if q.watched || q.serving == q.Servers || len(q.queue) == 0 {
		return
	}
	q.watched = true
	time.AfterFunc(stuck, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.watched = false
		if len(q.queue) > 0 && time.Since(q.began) >= stuck {
			q.start(ctx)
		}
		q.help(ctx)
	})
}

// more reports whether calls wait. If not, the goroutine ends.
func (q *Calls[T]) more() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		q.serving--
		return false
	}
	q.began = time.Now()
	return true
}

// Waiting returns the calls that wait, and the end of their callers' waits.
func (q *Calls[T]) Waiting() (of []T, until time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.queue {
		of = append(of, c.Of)
	}
	return of, lastOf(q.queue)
}

// Take begins the calls that wait and for which now returns true, in their order. It also returns the
// end of their callers' waits.
func (q *Calls[T]) Take(now func(T) bool) (calls []*Call[T], until time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = slices.DeleteFunc(q.queue, func(c *Call[T]) bool {
		if !now(c.Of) {
			return false
		}
		q.Waits.change(-1, true)
		calls = append(calls, c)
		return true
	})
	return calls, lastOf(calls)
}

// lastOf returns the last deadline of the callers, at most LongestWait from now.
func lastOf[T any](calls []*Call[T]) (until time.Time) {
	latest := time.Now().Add(LongestWait)
	for _, c := range calls {
		if c.until.IsZero() || c.until.After(latest) {
			return latest
		}
		if c.until.After(until) {
			until = c.until
		}
	}
	return until
}

// End ends a call.
func (c *Call[T]) End(err error) {
	c.Err = err
	close(c.done)
}

// Done is closed when the call has ended.
func (c *Call[T]) Done() <-chan struct{} { return c.done }

// Close refuses later calls, and waits for the calls in flight.
func (q *Calls[T]) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.Wait()
}

// Wait waits for the calls in flight.
func (q *Calls[T]) Wait() { q.running.Wait() }
