//go:build unix

package campaign_test

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// twins are transactions that settle in a wrong way.
var twins = map[string]func(ctx context.Context, t *naiveTx, receipt []byte, keep time.Duration) (bool, error){
	"settles apart": func(ctx context.Context, t *naiveTx, receipt []byte, keep time.Duration) (bool, error) {
		if err := t.exec(ctx, "COMMIT"); err != nil {
			return false, errors.Join(lock.ErrNotApplied, err)
		}
		return t.s.Settle(ctx, t.key, lock.Claim{Token: t.token}, receipt, keep)
	},
	"trusts its lease": func(ctx context.Context, t *naiveTx, receipt []byte, keep time.Duration) (bool, error) {
		if err := errors.Join(t.leave(ctx, receipt, keep), t.exec(ctx, "COMMIT")); err != nil {
			return false, errors.Join(lock.ErrNotApplied, err)
		}
		return true, nil
	},
	"does not ask whether its transaction is open": func(ctx context.Context, t *naiveTx, receipt []byte, keep time.Duration) (bool, error) {
		e, err := t.s.Get(ctx, t.key)
		if err != nil || e.Token != t.token {
			return false, errors.Join(lock.ErrNotApplied, err)
		}
		if err := t.leave(ctx, receipt, keep); err != nil {
			return false, errors.Join(lock.ErrNotApplied, err)
		}
		_ = t.exec(ctx, "COMMIT") // it may be committed
		return true, nil
	},
}

// naive begins its own transactions.
type naive struct {
	*sqlitestore.Store

	settle func(ctx context.Context, t *naiveTx, receipt []byte, keep time.Duration) (bool, error)
}

type naiveKey struct{}

func (s naive) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	conn, err := s.DB().Conn(ctx)
	if err != nil {
		return nil, nil, errors.Join(lock.ErrNotApplied, err)
	}
	t := &naiveTx{s, conn, key, token}
	if err := t.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return nil, nil, errors.Join(lock.ErrNotApplied, err, t.Rollback(ctx))
	}
	return context.WithValue(ctx, naiveKey{}, conn), t, nil
}

type naiveTx struct {
	s          naive
	conn       *sql.Conn
	key, token string
}

func (t *naiveTx) exec(ctx context.Context, statement string, args ...any) error {
	_, err := t.conn.ExecContext(context.WithoutCancel(ctx), statement, args...)
	return err
}

// leave leaves the receipt in the database.
func (t *naiveTx) leave(ctx context.Context, receipt []byte, keep time.Duration) error {
	ends := time.Now().Add(keep).UnixMicro()
	return t.exec(ctx, "INSERT OR REPLACE INTO latch_entries VALUES (?1, ?2, 1, NULL, NULL, 0, 1, ?3, ?4, ?4)", []byte(t.key), []byte(t.token), receipt, ends)
}

func (t *naiveTx) Settle(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
	ok, err := t.s.settle(ctx, t, receipt, keep)
	return ok, errors.Join(err, t.Rollback(ctx))
}

func (t *naiveTx) Outcome(ctx context.Context) (bool, error) {
	e, err := t.s.Get(ctx, t.key)
	return e.State == lock.Settled && e.Token == t.token, err
}

// Rollback also gives the connection back.
func (t *naiveTx) Rollback(ctx context.Context) error {
	_ = t.exec(ctx, "ROLLBACK")
	_ = t.conn.Close()
	return nil
}
