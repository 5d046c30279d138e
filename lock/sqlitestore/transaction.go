package sqlitestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Begin is part of [lock.Transactor]. It takes a connection of the database for the work. The work
// gets the transaction by [Tx]. Its first statement sends BEGIN IMMEDIATE.
func (s *Store) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	waits, cancel := context.WithTimeout(ctx, 2*rowstore.LongestWait)
	defer cancel()
	work, err := s.newSession(waits)
	if err != nil {
		return nil, nil, failure.NotBegun(err)
	}
	t := &workTransaction{store: s, work: work, key: []byte(key), token: token, over: make(chan struct{})}
	return context.WithValue(context.WithValue(ctx, txKey{}, work.Tx), insideKey{s}, work), t, nil
}

// workTransaction is the [lock.Transaction] of work.
type workTransaction struct {
	store *Store
	work  *session
	key   []byte
	token string

	ending bool          // Settle or Rollback was called
	over   chan struct{} // closed when the transaction has ended

	// once it is over
	committed bool
	err       error // the reason if it was not committed; nil if the claim was gone
}

// end ends the transaction on a goroutine of its own, and waits for it until ctx ends.
func (t *workTransaction) end(ctx context.Context, settle func(ctx context.Context)) (over bool) {
	if !t.ending {
		t.ending = true
		go func() {
			defer close(t.over)
			defer t.work.end(context.WithoutCancel(ctx))
			if t.work.Take(ctx); settle != nil {
				settle(ctx)
			}
		}()
	}
	return within(ctx, t.over)
}

func (t *workTransaction) Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	receipt = bytes.Clone(receipt)
	over := t.end(ctx, func(ctx context.Context) {
		if t.err = t.work.ready(ctx); t.err != nil {
			return
		}
		c, err := t.store.queue.Enter(ctx, queued{do: func(ctx context.Context, f *files, now int64) error {
			return t.leave(ctx, f, receipt, keep, now)
		}})
		if err == nil {
			<-c.Done()
			err = c.Err
		}
		if err != nil && !t.committed && t.err == nil {
			t.err = failure.Transient(err)
		}
	})
	if !over {
		return false, hangs(ctx)
	}
	return t.committed, t.err
}

// leave writes the receipt and commits, while the file of claims is locked. So no other call finds
// neither claim nor receipt. A crash between the two commits leaves both, and reads find the
// receipt first.
func (t *workTransaction) leave(ctx context.Context, f *files, receipt []byte, keep time.Duration, now int64) error {
	r, err := read(ctx, f.get, t.key, now)
	if err != nil || r == nil || r.Settled || string(r.Token) != t.token {
		return err
	}
	r.Settle(receipt, keep)
	t.err = t.work.commit(ctx, r, now)
	if t.committed = t.work.committed; !t.committed {
		return nil // its error is not of the file of claims
	}
	return f.remove(ctx, t.key)
}

var (
	errEnded = errors.New("it is over before the work is: a statement such as INSERT OR ROLLBACK has failed, or the work has ended it: " +
		"leave that to the guard, and return an error, or an answer that is not kept, to have it rolled back")
	errUndone = errors.New("SQLite has rolled it back, since a statement was interrupted or has met an error of the disk")
)

// undone returns the error of a transaction in which a statement has failed.
func undone(err error) error {
	switch code(err) {
	case codeConstraint, codeTooBig, codeError, codeReadOnly:
		return failure.Permanent(err)
	default:
		return failure.Transient(failure.Classed(err))
	}
}

// Outcome is part of [lock.Transaction]. It waits for a COMMIT that the disk has not answered.
// After an error of the disk, the write-ahead log may still contain changes that SQLite has taken
// back. So Outcome writes to the log, which overwrites them.
func (t *workTransaction) Outcome(ctx context.Context) (ok bool, err error) {
	if !t.end(ctx, nil) {
		return false, hangs(ctx)
	}
	if t.committed || t.err == nil || errors.Is(t.err, lock.ErrNotApplied) {
		return t.committed, nil
	}
	committed, err := writing(ctx, t.store, func(ctx context.Context, f *files, now int64) (committed bool, err error) {
		r, err := read(ctx, f.settled, t.key, now)
		if err != nil {
			return false, err
		}
		committed = r != nil && string(r.Token) == t.token
		if r == nil {
			r = &rowstore.Row{Key: t.key, Token: []byte(t.token)} // a row that has ended
		}
		_, err = f.receipts.ExecContext(ctx, t.store.statements.settle, append(r.Values(), now)...)
		return committed, err
	})
	if err != nil {
		return false, fmt.Errorf("sqlitestore: asking for the outcome of COMMIT: %s", err.Error()) // whether this question was applied does not show the outcome
	}
	t.committed, t.err = committed, nil
	return committed, nil
}

func (t *workTransaction) Rollback(ctx context.Context) error {
	if !t.end(ctx, nil) {
		return hangs(ctx)
	}
	return nil
}
