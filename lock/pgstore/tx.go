package pgstore

import (
	"cmp"
	"context"
	"database/sql"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

type (
	txKey    struct{}
	sqlTxKey struct{}
)

// Tx returns the transaction of the work whose context is ctx. Its changes are committed
// with the receipt, or not at all. ok is false outside of a run of [lock.Locker.Once] with
// [lock.WithTransaction], over a store of [New] or [Open].
//
// Commit and Rollback of tx return an error, and do nothing. To roll back, return an error, or
// send an answer that is not kept. Begin of tx makes a savepoint, whose Commit and Rollback work.
// Only goroutines of the work may use tx, one at a time, and only until the work ends. If the
// first statement has parameters, BEGIN is sent together with it.
func Tx(ctx context.Context) (tx pgx.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(pgx.Tx)
	return tx, ok
}

// SQLTx is [Tx] over a store of [NewSQL]. Commit and Rollback of the *sql.Tx also return an error.
// The transaction stays open, but later calls of the *sql.Tx return [sql.ErrTxDone]. A deferred
// Rollback does no harm. If rows are still open when the work returns, the work is rolled back.
//
// Stmt of the *sql.Tx does not accept a statement that was prepared on the *sql.DB: use Prepare
// of the *sql.Tx. pgx prepares statements that are executed again by itself.
func SQLTx(ctx context.Context) (tx *sql.Tx, ok bool) {
	tx, ok = ctx.Value(sqlTxKey{}).(*sql.Tx)
	return tx, ok
}

// workTx is the [pgx.Tx] of the work. It sends the first statement together with BEGIN, in one round trip,
// if the result is the same.
type workTx struct {
	s     *session
	ctx   context.Context //nolint:containedctx // of the work, for methods that have none
	name  string          // of the savepoint; "" for the whole transaction
	ended *bool           // whether the savepoint was ended; nil for the whole transaction
}

// enter begins a call, which leave ends. The connection serves one call at a time.
func (t workTx) enter() (leave func(), err error) {
	switch {
	case t.s.over.Load():
		return nil, pgx.ErrTxClosed
	case !t.s.used.TryLock():
		return nil, errInUse
	}
	if t.ended != nil && *t.ended {
		t.s.used.Unlock()
		return nil, pgx.ErrTxClosed
	}
	return t.s.used.Unlock, nil
}

// sendWithBegin sends BEGIN and a statement. It returns nil if the statement has to be executed by
// itself:
//
//   - it is not the first
//   - it has no parameters: the driver executes such a statement in another way in a batch
//   - it could not be prepared: before BEGIN, this failure does not end the transaction
func (t workTx) sendWithBegin(ctx context.Context, query string, args []any) pgx.BatchResults {
	if t.s.tx != nil || t.s.over.Load() || len(args) == 0 {
		return nil
	}
	switch args[0].(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return nil
	}
	batch := new(pgx.Batch)
	batch.BeginTx(pgx.TxOptions{})
	batch.Queue(t.s.setMark())
	batch.Queue(query, args...)
	results := t.s.conn.SendBatch(ctx, batch)
	_, err := results.Exec()
	if err == nil {
		_, err = results.Exec()
	}
	if err != nil {
		_ = results.Close()
		return nil
	}
	t.s.tx = results.Tx()
	return results
}

func (t workTx) Exec(ctx context.Context, query string, args ...any) (tag pgconn.CommandTag, err error) {
	leave, err := t.enter()
	if err != nil {
		return tag, err
	}
	defer leave()
	if results := t.sendWithBegin(ctx, query, args); results != nil {
		tag, err = results.Exec()
		err = cmp.Or(err, results.Close())
	} else if tx, beginErr := t.s.begin(ctx); beginErr != nil {
		return tag, beginErr
	} else {
		tag, err = tx.Exec(ctx, query, args...)
	}
	t.s.noteEnd(tag)
	return tag, err
}

// noteEnd notes a statement by which the work has ended the transaction.
func (s *session) noteEnd(tag pgconn.CommandTag) {
	switch tag.String() {
	case "COMMIT":
		s.committed = true
	case "ROLLBACK", "PREPARE TRANSACTION": // also to a savepoint; a prepared transaction keeps the mark
		s.undone = s.ended()
	}
}

func (t workTx) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	leave, err := t.enter()
	if err != nil {
		return failed(err).Query()
	}
	defer leave()
	if results := t.sendWithBegin(ctx, query, args); results != nil {
		rows, err := results.Query()
		return &firstRows{rows, results}, err
	}
	tx, err := t.s.begin(ctx)
	if err != nil {
		return failed(err).Query()
	}
	return tx.Query(ctx, query, args...)
}

func (t workTx) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	leave, err := t.enter()
	if err != nil {
		return failed(err).QueryRow()
	}
	defer leave()
	if results := t.sendWithBegin(ctx, query, args); results != nil {
		return firstRow{results.QueryRow(), results}
	}
	tx, err := t.s.begin(ctx)
	if err != nil {
		return failed(err).QueryRow()
	}
	return tx.QueryRow(ctx, query, args...)
}

func failed(err error) pgx.BatchResults { return pgx.FailedBatchResults(new(pgx.Batch), err) }

// firstRows end their batch with their own end.
type firstRows struct {
	pgx.Rows

	results pgx.BatchResults
}

func (r *firstRows) Next() bool {
	more := r.Rows.Next()
	if !more {
		r.Close()
	}
	return more
}

func (r *firstRows) Close() {
	r.Rows.Close()
	_ = r.results.Close() // the rows have the same error
}

// firstRow is the row of a batch, which it ends.
type firstRow struct {
	pgx.Row

	results pgx.BatchResults
}

func (r firstRow) Scan(into ...any) error {
	return cmp.Or(r.Row.Scan(into...), r.results.Close())
}

func (t workTx) Begin(ctx context.Context) (pgx.Tx, error) {
	p := workTx{t.s, t.ctx, "sp_" + strconv.FormatInt(t.s.parts.Add(1), 10), new(bool)}
	if _, err := t.Exec(ctx, "savepoint "+p.name); err != nil {
		return nil, err
	}
	return p, nil
}

func (t workTx) Commit(ctx context.Context) error { return t.end(ctx, "release savepoint ") }

func (t workTx) Rollback(ctx context.Context) error { return t.end(ctx, "rollback to savepoint ") }

// end ends a savepoint. It does not end the whole transaction: see [Tx].
func (t workTx) end(ctx context.Context, how string) error {
	if t.ended == nil {
		return out.Refusal()
	}
	_, err := t.Exec(ctx, how+t.name)
	*t.ended = true
	return err
}

// use calls do with the transaction, which has begun.
func (t workTx) use(ctx context.Context, do func(pgx.Tx) error) error {
	leave, err := t.enter()
	if err != nil {
		return err
	}
	defer leave()
	tx, err := t.s.begin(ctx)
	if err != nil {
		return err
	}
	return do(tx)
}

func (t workTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (n int64, err error) {
	err = t.use(ctx, func(tx pgx.Tx) error {
		n, err = tx.CopyFrom(ctx, table, columns, rows)
		return err
	})
	return n, err
}

func (t workTx) SendBatch(ctx context.Context, b *pgx.Batch) (results pgx.BatchResults) {
	err := t.use(ctx, func(tx pgx.Tx) error {
		results = tx.SendBatch(ctx, b)
		return nil
	})
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return results
}

func (t workTx) Prepare(ctx context.Context, name, query string) (d *pgconn.StatementDescription, err error) {
	err = t.use(ctx, func(tx pgx.Tx) error {
		d, err = tx.Prepare(ctx, name, query)
		return err
	})
	return d, err
}

func (t workTx) LargeObjects() pgx.LargeObjects {
	t.Conn()
	if t.s.tx == nil {
		return pgx.LargeObjects{}
	}
	return t.s.tx.LargeObjects()
}

// Conn is part of [pgx.Tx]. The connection is in the transaction, or closed.
func (t workTx) Conn() *pgx.Conn {
	if _, err := t.s.begin(t.ctx); err != nil && !t.s.over.Load() {
		t.s.hangUp()
	}
	return t.s.conn
}
