package faketx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// transaction is one session's. Its fields are locked with the Store.
type transaction struct {
	store      *Store
	key, token string
	rows       []string
	failed     bool // a statement has
	over       bool // committed, rolled back, or its session was ended
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

// Insert inserts a row in the transaction that ctx is of.
func Insert(ctx context.Context, row string) error { return insert(ctx, row, false) }

// Fail makes a statement fail in the transaction that ctx is of, which can then only be
// rolled back, as in PostgreSQL.
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
	case t.store.broken == Autocommit:
		t.store.effects = append(t.store.effects, row)
	default:
		t.rows = append(t.rows, row)
	}
	return nil
}

// end ends the session. The Store is locked.
func (t *transaction) end() {
	if t.over {
		return
	}
	s := t.store
	t.over = true
	s.open--
	if e := s.entries[t.key]; e != nil && e.writer == t {
		e.writer = nil
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// Settle is part of [lock.Transaction]. What it meets is met by its COMMIT: before it, the
// row of the claim was written, and is locked.
func (t *transaction) Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	s := t.store
	err = s.write(ctx, t.key, func(e *entry) error {
		switch {
		case t.over:
			return errors.New("faketx: the session is over")
		case t.failed:
			t.end()
			return fmt.Errorf("%w: %w, and COMMIT rolled back", lock.ErrNotApplied, errStatement)
		}
		mine := e != nil && e.Token == t.token && e.State != lock.Settled
		if ok = mine || s.broken == Apart; !ok {
			t.end()
		} else if mine {
			e.writer = t
		}
		return nil
	})
	if err != nil || !ok {
		return false, err
	}
	receipt = slices.Clone(receipt)
	err = s.do(ctx, Commit, func() { t.commit(receipt, keep) })
	if errors.Is(err, lock.ErrNotApplied) {
		s.mu.Lock()
		t.end()
		s.mu.Unlock()
	}
	return err == nil, err
}

// commit is the arrival of a COMMIT.
func (t *transaction) commit(receipt []byte, keep time.Duration) {
	s := t.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.over && s.broken != Trusting {
		return
	}
	if e := s.entries[t.key]; e != nil && e.Token == t.token && e.State != lock.Settled {
		e.settle(receipt, keep)
	}
	s.effects = append(s.effects, t.rows...)
	t.rows, t.committed = nil, true
	t.end()
}

// Outcome is part of [lock.Transaction]. It ends the session.
func (t *transaction) Outcome(ctx context.Context) (committed bool, err error) {
	s := t.store
	return meet(ctx, s, Outcome, func(context.Context) (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
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
