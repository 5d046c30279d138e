package sqlitestore

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// call is a call of the store. All calls of a process wait in one queue. One goroutine executes the
// calls in the queue in one transaction on the file of claims, and ends when the queue is empty. So
// calls share the locks and the waits for the disk, and a disk that hangs holds up no caller for
// longer than its context.
type call struct {
	durable bool // it waits for the disk
	do      execution
	step    atomic.Int32
	done    chan struct{} // closed after the call
	err     error         // of the call
}

// execution is the work of a call, at a moment in microseconds since 1970.
type execution func(ctx context.Context, f *files, now int64) error

// The steps of a call.
const (
	waiting int32 = iota
	left          // its caller has taken it back
	begun
)

const (
	// pause is the time between two tries to lock a file that another process has locked.
	pause = time.Millisecond

	// sweepEvery is the number of calls, or of receipts of transactions, between two sweeps.
	// A sweep removes up to twice as many ended rows, which is more than they can have added.
	sweepEvery = 64

	// sweepAfter is the time for which an ended row stays. Work may settle its claim after the
	// lease.
	sweepAfter = 10 * time.Minute
)

// call executes do in a transaction of the file of claims.
func (s *Store) call(ctx context.Context, durable bool, do execution) error {
	c, err := s.enter(ctx, durable, do)
	if err != nil {
		return err
	}
	if !within(ctx, c.done) {
		return hangs(ctx)
	}
	return c.err
}

// enter puts a call into the queue, and returns when it is done, or has begun and ctx has ended.
func (s *Store) enter(ctx context.Context, durable bool, do execution) (*call, error) {
	if ctx.Err() != nil {
		return nil, notApplied(context.Cause(ctx))
	}
	c := &call{durable: durable, do: do, done: make(chan struct{})}
	if !s.join(ctx, c) {
		return nil, errClosed
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if c.step.CompareAndSwap(waiting, left) {
			return nil, notApplied(context.Cause(ctx))
		}
	}
	return c, nil
}

// join puts a call into the queue, and starts the goroutine that serves it if there is none. It
// reports whether the store is open.
func (s *Store) join(ctx context.Context, c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.queue = append(s.queue, c)
	if s.serving == nil {
		s.serving = make(chan struct{})
		go s.serve(context.WithoutCancel(ctx))
	}
	return true
}

// serve serves the calls in the queue.
func (s *Store) serve(ctx context.Context) {
	for more := true; more; more = s.more() {
		durable, err := s.begin(ctx)
		if errors.Is(err, errAlone) {
			continue
		}
		calls := s.take(err != nil || durable)
		if err == nil {
			err = s.execute(ctx, calls)
		}
		if err != nil { // the next calls open the files anew
			s.files.close()
			s.files = nil
		}
		for _, c := range calls {
			c.err = storeError(err)
			close(c.done)
		}
	}
}

// errAlone says that another process has locked the file of claims, and no caller waits for it.
var errAlone = errors.New("no caller waits")

// more reports whether the queue has calls. If not, the goroutine ends.
func (s *Store) more() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		return true
	}
	close(s.serving)
	s.serving = nil
	return false
}

// begin begins a transaction on the file of claims. The commit waits for the disk if one of the
// calls needs the disk. begin waits for other processes as long as a caller waits.
func (s *Store) begin(ctx context.Context) (durable bool, err error) {
	for {
		if s.files == nil {
			if s.files, err = s.openFiles(ctx); err != nil {
				return false, err
			}
		}
		durable, awaited := s.awaited()
		if !awaited {
			return false, errAlone
		}
		switch err = s.files.lock(ctx, durable); {
		case busy(err):
			takePause(ctx)
		case err == nil && s.files.replaced():
			s.files.close()
			s.files = nil
		default:
			return durable, err
		}
	}
}

// awaited reports whether a caller still waits for a call in the queue, and whether one of these
// calls needs the disk. It removes the calls for which no caller waits.
func (s *Store) awaited() (durable, awaited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = slices.DeleteFunc(s.queue, func(c *call) bool { return c.step.Load() == left })
	for _, c := range s.queue {
		durable = durable || c.durable
	}
	return durable, len(s.queue) > 0
}

// take begins the calls in the queue. It leaves calls that wait for the disk in the queue, unless
// the commit waits for the disk.
func (s *Store) take(durable bool) (calls []*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var later []*call
	for _, c := range s.queue {
		switch {
		case c.durable && !durable:
			later = append(later, c)
		case c.step.CompareAndSwap(waiting, begun):
			calls = append(calls, c)
		}
	}
	s.queue = later
	return calls
}

// execute executes calls and commits. After an error, none has had an effect.
func (s *Store) execute(ctx context.Context, calls []*call) error {
	now := time.Now().UnixMicro()
	for _, c := range calls {
		if err := c.do(ctx, s.files, now); err != nil {
			return err
		}
	}
	if s.served += len(calls); s.served >= sweepEvery {
		if err := s.files.exec(ctx, s.statements.sweep, now-sweepAfter.Microseconds(), 2*s.served); err != nil {
			return err
		}
		s.served = 0
	}
	if _, err := s.files.commit.ExecContext(ctx); err != nil {
		return rowstore.CommitError{Err: err}
	}
	return nil
}

// grace is the time for which a caller whose context has ended waits for a transaction that has
// begun. By then the outcome is known, unless the disk hangs.
const grace = 100 * time.Millisecond

// within waits for done until ctx ends, and reports whether it is closed.
func within(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// takePause waits for a pause, and reports whether ctx has not ended before.
func takePause(ctx context.Context) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
