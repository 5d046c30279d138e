package faketx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// transaction is the transaction of one session. Its fields are locked with the Store.
type transaction struct {
	store      *Store
	key, token string
	rows       []string
	failed     bool // a statement has failed
	fenced     bool // its claim was taken away from it
	over       bool // committed, rolled back, or Outcome was called
	committed  bool
}

type transactionKey struct{}

// Begin is part of [lock.Transactor].
func (s *Store) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	t, err := meet(ctx, s, Begin, func(ctx context.Context) (*transaction, error) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: no connection: %w", lock.ErrNotApplied, context.Cause(ctx))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open++
		return &transaction{store: s, key: key, token: token}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return context.WithValue(ctx, transactionKey{}, t), t, nil
}

// Insert inserts a row in the transaction of ctx.
func Insert(ctx context.Context, row string) error { return insert(ctx, row, false) }

// Fail makes a statement fail in the transaction of ctx. The transaction can then only be rolled
// back, as in PostgreSQL.
func Fail(ctx context.Context) error { return insert(ctx, "", true) }

var errStatement = errors.New("faketx: a statement has failed")

func insert(ctx context.Context, row string, fails bool) error {
	t, ok := ctx.Value(transactionKey{}).(*transaction)
	if !ok {
		return errors.New("faketx: not in a transaction")
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	switch t.failed = t.failed || fails; {
	case t.over:
		return errors.New("faketx: the transaction is over")
	case t.failed:
		return errStatement
	default:
		t.rows = append(t.rows, row)
	}
	return nil
}

// add commits rows. The database is locked.
func (d *database) add(rows ...string) {
	d.effects = append(d.effects, rows...)
	for _, row := range rows {
		if d.committed != nil {
			d.committed(row)
		}
	}
}

// end ends the session. The Store is locked.
func (t *transaction) end() {
	if !t.over {
		t.over = true
		t.store.open--
	}
}

// Settle is part of [lock.Transaction]. Receipt and COMMIT are one step, with one fault.
func (t *transaction) Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	s := t.store
	receipt = slices.Clone(receipt)
	ok, err = meet(ctx, s, Commit, func(context.Context) (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return t.commit(receipt, keep)
	})
	if errors.Is(err, lock.ErrNotApplied) {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.end()
	}
	return ok && err == nil, err
}

// commit executes receipt and COMMIT when they arrive. The Store is locked.
func (t *transaction) commit(receipt []byte, keep time.Duration) (ok bool, err error) {
	s := t.store
	e := s.entries[t.key]
	mine := e != nil && e.Token == t.token && e.State != lock.Settled && !t.fenced
	switch {
	case s.trusting: // the COMMIT was in progress when Outcome looked, and takes effect even without the claim
	case t.over && !t.fenced:
		return false, fmt.Errorf("%w: faketx: the session is over", lock.ErrNotApplied)
	case t.failed:
		t.end()
		return false, fmt.Errorf("%w: %w, and COMMIT rolled back", lock.ErrNotApplied, errStatement)
	case !mine:
		t.end()
		return false, nil
	}
	if mine {
		e.settle(receipt, keep)
	}
	s.add(t.rows...)
	t.rows, t.committed = nil, true
	t.end()
	return true, nil
}

// Outcome is part of [lock.Transaction]. It takes the claim away from the transaction: a COMMIT
// that arrives later finds no claim.
func (t *transaction) Outcome(ctx context.Context) (committed bool, err error) {
	s := t.store
	return meet(ctx, s, Outcome, func(context.Context) (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.fenced = !s.trusting
		t.end()
		return t.committed, nil
	})
}

// Rollback is part of [lock.Transaction].
func (t *transaction) Rollback(ctx context.Context) error {
	return t.store.do(ctx, Rollback, func() {
		t.store.mu.Lock()
		defer t.store.mu.Unlock()
		t.end()
	})
}

var _ lock.Transactor = (*Store)(nil)
