package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock"
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

// pause is the time between two tries to lock a file that another process has locked.
const pause = time.Millisecond

// answered executes do in a transaction of the file of claims, and returns its result. do may go on after an
// error, so its result is read without one only.
func answered[T any](ctx context.Context, s *Store, durable bool, do func(ctx context.Context, f *files, now int64) (T, error)) (none T, err error) {
	var result T
	c, err := s.queue.Enter(ctx, queued{durable, func(ctx context.Context, f *files, now int64) (err error) {
		result, err = do(ctx, f, now)
		return err
	}})
	switch {
	case err != nil:
		return none, failure.NotApplied(err)
	case !within(ctx, c.Done()):
		return none, hangs(ctx)
	case c.Err != nil:
		return none, c.Err
	}
	return result, nil
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
			if s.files, err = s.openFiles(ctx, false); err != nil {
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
	if s.served += len(calls); s.served >= rowstore.SweepEvery { // removes more than can have ended since the last sweep
		if err := s.files.exec(ctx, s.statements.sweep, now-rowstore.SweepAfter.Microseconds(), 2*s.served); err != nil {
			return err
		}
		s.served = 0
	}
	if _, err := s.files.commit.ExecContext(ctx); err != nil {
		return fmt.Errorf("%w: %w", rowstore.ErrCommit, err)
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
func takePause(ctx context.Context) bool { return rowstore.Pause(ctx, pause) }

// committed returns the living receipt that the work of a key has committed. No claim replaces it, and it
// answers also while the file of claims is locked or lost. ok is false if there is none, or if the database
// does not answer: the claim itself finds out why.
func (s *Store) committed(ctx context.Context, key string) (e lock.Entry, ok bool) {
	if s.file.Load() == nil {
		return e, false // the first call finds the file by a connection of the work
	}
	var r *rowstore.Row
	c, err := s.questions.Enter(ctx, func(ctx context.Context, f *files, now int64) (err error) {
		r, err = read(ctx, f.settled, []byte(key), now)
		return err
	})
	if err != nil {
		return e, false
	}
	select {
	case <-c.Done():
		return r.Entry(), c.Err == nil && r.State() == lock.Settled
	default: // ctx has ended
		return e, false
	}
}

// readReceipts answers the questions in the queue, over a connection that only reads.
func (s *Store) readReceipts(ctx context.Context) {
	calls, _ := s.questions.Take(func(execution) bool { return true })
	var err error
	if s.reads == nil {
		s.reads, err = s.openFiles(ctx, true)
	}
	for _, c := range calls {
		if err == nil {
			err = c.Of(ctx, s.reads, time.Now().UnixMicro())
		}
		c.End(err)
	}
	if err != nil { // the next questions open the file anew
		s.reads.close()
		s.reads = nil
	}
}
