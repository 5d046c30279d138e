package pgstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
)

type (
	txKey    struct{}
	sqlTxKey struct{}
)

// Tx returns the transaction of the work that ctx is of: what is done in it is committed
// with the receipt, or not at all. ok is false outside of a run of [lock.Locker.Once] with
// [lock.WithTransaction], over a store of [New] or [Open].
//
// Its Commit and Rollback return an error, and do nothing: to have it rolled back, return an
// error, or an answer that is not kept. Its Begin makes a savepoint, of which both work. It
// is for the goroutines of the work alone, one at a time, and over with the work.
func Tx(ctx context.Context) (tx pgx.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(pgx.Tx)
	return tx, ok
}

// SQLTx is [Tx] over a store of [NewSQL]. Leave its Commit and Rollback alone: what the
// work ends itself has its receipt from another transaction, and if the process dies before
// that, has none.
func SQLTx(ctx context.Context) (tx *sql.Tx, ok bool) {
	tx, ok = ctx.Value(sqlTxKey{}).(*sql.Tx)
	return tx, ok
}

// workTx is what the work gets of a transaction.
type workTx struct{ pgx.Tx }

var errNotYours = errors.New("pgstore: the guard commits this transaction with the receipt: return an error, or an answer that is not kept, to have it rolled back")

// Commit returns an error: see [Tx].
func (workTx) Commit(context.Context) error { return errNotYours }

// Rollback returns an error: see [Tx].
func (workTx) Rollback(context.Context) error { return errNotYours }

func (t *poolTx) carried(ctx context.Context) context.Context {
	return context.WithValue(ctx, txKey{}, pgx.Tx(workTx{t.Tx}))
}
