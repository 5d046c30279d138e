package sqlitestore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// queued is a call of the store. All calls of a process, except replays, wait in one queue, and one goroutine
// executes the calls that wait in one transaction on the file of claims.
type queued struct {
	durable bool // it waits for the disk
	do      execution
}

// execution is the work of a call, at a moment in microseconds since 1970.
type execution func(ctx context.Context, f *files, now int64) error

const (
	// pause is the time between two tries to lock a file that another process has locked.
	pause = time.Millisecond

	// sweepEvery is the number of calls, or of receipts of transactions, between two sweeps.
	// A sweep removes up to twice as many ended rows, which is more than they can have added.
	sweepEvery = 64
)

// answered executes do in a transaction of the file of claims, and returns its result. do may go on after an
// error, so its result is read without one only.
func answered[T any](ctx context.Context, s *Store, durable bool, do func(ctx context.Context, f *files, now int64) (T, error)) (got T, err error) {
	var result T
	err = s.call(ctx, durable, func(ctx context.Context, f *files, now int64) (err error) {
		result, err = do(ctx, f, now)
		return err
	})
	if err == nil {
		got = result
	}
	return got, err
}

// call executes do in a transaction of the file of claims.
func (s *Store) call(ctx context.Context, durable bool, do execution) error {
	c, err := s.enter(ctx, durable, do)
	if err != nil {
		return err
	}
	if !within(ctx, c.Done()) {
		return hangs(ctx)
	}
	return c.Err
}

// enter puts a call into the queue, and returns when it is done, or has begun and ctx has ended.
func (s *Store) enter(ctx context.Context, durable bool, do execution) (*rowstore.Call[queued], error) {
	c, err := s.queue.Enter(ctx, queued{durable, do})
	if err != nil {
		return nil, failure.NotApplied(err)
	}
	return c, nil
}

// serve executes the calls in the queue. Calls that wait for the disk stay there, unless the commit
// waits for the disk.
func (s *Store) serve(ctx context.Context) {
	durable, err := s.begin(ctx)
	if errors.Is(err, errAlone) {
		return
	}
	calls, _ := s.queue.Take(func(c queued) bool { return err != nil || durable || !c.durable })
	if err == nil {
		err = s.execute(ctx, calls)
	}
	if err != nil { // the next calls open the files anew
		s.files.close()
		s.files = nil
	}
	for _, c := range calls {
		c.End(failure.Of(err))
	}
}

// errAlone says that another process has locked the file of claims, and no caller waits for it.
var errAlone = errors.New("no caller waits")

// begin begins a transaction on the file of claims. The commit waits for the disk if one of the
// calls needs the disk. begin waits for other processes as long as a caller waits.
func (s *Store) begin(ctx context.Context) (durable bool, err error) {
	for {
		if s.files == nil {
			if s.files, err = s.openFiles(ctx); err != nil {
				return false, err
			}
		}
		calls, _ := s.queue.Waiting()
		if len(calls) == 0 {
			return false, errAlone
		}
		durable := slices.ContainsFunc(calls, func(c queued) bool { return c.durable })
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

// execute executes calls and commits. After an error, none has had an effect.
func (s *Store) execute(ctx context.Context, calls []*rowstore.Call[queued]) error {
	now := time.Now().UnixMicro()
	for _, c := range calls {
		if err := c.Of.do(ctx, s.files, now); err != nil {
			return err
		}
	}
	if s.served += len(calls); s.served >= sweepEvery {
		if err := s.files.exec(ctx, s.statements.sweep, now-rowstore.SweepAfter.Microseconds(), 2*s.served); err != nil {
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
