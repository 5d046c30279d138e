package snippets_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/pgserver"
	"github.com/httplatch/httplatch/internal/walk"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func ordersOverPostgres(pool *pgxpool.Pool, insertOrder func(http.ResponseWriter, *http.Request)) (http.Handler, *lock.Locker) {
	mux := http.NewServeMux()

	locker := lock.New(pgstore.New(pool), lock.WithTransaction())
	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
	mux.Handle("POST /orders", auth.Require(once(http.HandlerFunc(insertOrder))))

	return mux, locker
}

func insertOrder(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	tx, _ := pgstore.Tx(ctx) // begun by the guard, and committed with the answer
	var id int64
	err := tx.QueryRow(ctx, `INSERT INTO orders (customer) VALUES ($1) RETURNING id`, auth.UserID(ctx)).Scan(&id)
	if err == nil {
		_, err = tx.Exec(ctx, `INSERT INTO outbox (recipient, text) VALUES ($1, $2)`, auth.UserID(ctx), fmt.Sprintf("Thank you for order %d.", id))
	}
	if err != nil {
		http.Error(w, "try again later", http.StatusServiceUnavailable) // not kept, so all is rolled back
		return
	}
	w.WriteHeader(http.StatusCreated) // held back until COMMIT is known
	_, _ = fmt.Fprintf(w, `{"id":%d}`, id)
}

// sendMails sends what is in the outbox. One process at a time does, which is enough.
func sendMails(ctx context.Context, locker *lock.Locker, pool *pgxpool.Pool, send func(ctx context.Context, id int64, to, text string) error) error {
	return locker.Do(ctx, lock.Key("outbox", "mail"), func(ctx context.Context) error {
		for {
			var id int64
			var to, text string
			err := pool.QueryRow(ctx, `SELECT id, recipient, text FROM outbox ORDER BY id LIMIT 1`).Scan(&id, &to, &text)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			if err == nil {
				err = send(ctx, id, to, text) // with id as its Message-ID, or as the provider's idempotency key
			}
			if err == nil {
				_, err = pool.Exec(ctx, `DELETE FROM outbox WHERE id = $1`, id)
			}
			if err != nil {
				return err
			}
		}
	})
}

var bank = new(testBank)

func chargeOrder(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	tx, _ := pgstore.Tx(ctx)
	key, _ := keyfunc.IdempotencyKey(r) // as the guard reads it; unique for the user only
	if err := bank.Charge(ctx, auth.UserID(ctx), key); err != nil {
		http.Error(w, "the card was refused", http.StatusPaymentRequired)
		return
	}
	// From here on no failure makes it run again, not even that of this process.
	if err := lock.Commit(ctx); err != nil {
		bank.Refund(ctx, auth.UserID(ctx), key)
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	if _, err := tx.Exec(ctx, `INSERT INTO payments (customer, key) VALUES ($1, $2)`, auth.UserID(ctx), key); err != nil {
		http.Error(w, "the card was charged", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// testBank counts what it has charged.
type testBank struct{ charged, refunded int }

func (b *testBank) Charge(context.Context, string, string) error { b.charged++; return nil }

func (b *testBank) Refund(context.Context, string, string) { b.refunded++ }

// shopDatabase is one with the tables of the page's code.
func shopDatabase(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), pgserver.Database(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), `
		CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, customer text);
		CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY, recipient text, text text);`+pgstore.Schema)
	require.NoError(t, err)
	return pool
}

func closeAfter(t *testing.T, l *lock.Locker) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		require.NoError(t, l.Close(ctx))
		l.Store().(*pgstore.Store).Close()
	})
}

func rowsOf(t *testing.T, pool *pgxpool.Pool, table string) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

func TestExactlyOnceOfThePage(t *testing.T) {
	t.Parallel()
	pool := shopDatabase(t)
	h, locker := ordersOverPostgres(pool, insertOrder)
	closeAfter(t, locker)
	first := served(h, "POST", "/orders", "k")
	require.Equal(t, http.StatusCreated, first.Code, first.Body)
	again := served(h, "POST", "/orders", "k")
	require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
	require.Equal(t, first.Body.String(), again.Body.String())
	require.Equal(t, 1, rowsOf(t, pool, "orders"))

	var sent []string
	fails := errors.New("no mail server")
	send := func(_ context.Context, _ int64, to, text string) error {
		if fails != nil {
			return fails
		}
		sent = append(sent, to+": "+text)
		return nil
	}
	require.ErrorIs(t, sendMails(t.Context(), locker, pool, send), fails)
	require.Equal(t, 1, rowsOf(t, pool, "outbox"))
	fails = nil
	for range 2 {
		require.NoError(t, sendMails(t.Context(), locker, pool, send))
	}
	require.Equal(t, []string{"42: Thank you for order 1."}, sent)
}

// A failure leaves neither the order nor its e-mail.
func TestExactlyOnceRollsBack(t *testing.T) {
	t.Parallel()
	pool := shopDatabase(t)
	h, locker := ordersOverPostgres(pool, insertOrder)
	closeAfter(t, locker)
	_, err := pool.Exec(t.Context(), "ALTER TABLE outbox RENAME TO away")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, ask(h, "POST", "/orders", "k").Code)
	require.Zero(t, rowsOf(t, pool, "orders"))
	_, err = pool.Exec(t.Context(), "ALTER TABLE away RENAME TO outbox")
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, served(h, "POST", "/orders", "k").Code)
	require.Equal(t, 1, rowsOf(t, pool, "orders"))
	require.Equal(t, 1, rowsOf(t, pool, "outbox"))
}

// After lock.Commit, the card is not charged again, whatever becomes of the rows.
func TestChargeOfThePage(t *testing.T) {
	t.Parallel()
	pool := shopDatabase(t) // without the table of payments
	h, locker := ordersOverPostgres(pool, chargeOrder)
	closeAfter(t, locker)
	before := *bank
	first := served(h, "POST", "/orders", "k")
	require.Equal(t, http.StatusInternalServerError, first.Code, first.Body)
	require.Equal(t, "the card was charged\n", first.Body.String(), "the handler knows best what it has done")
	again := ask(h, "POST", "/orders", "k")
	require.Equal(t, http.StatusConflict, again.Code)
	require.Contains(t, again.Body.String(), "result-not-replayable")
	require.Equal(t, 1, bank.charged-before.charged)
	require.Equal(t, before.refunded, bank.refunded)
}

// The handler may choose the isolation of its transaction, before any other statement.
func TestIsolationOfThePage(t *testing.T) {
	t.Parallel()
	pool := shopDatabase(t)
	h, locker := ordersOverPostgres(pool, func(w http.ResponseWriter, r *http.Request) {
		tx, _ := pgstore.Tx(r.Context())
		_, err := tx.Exec(r.Context(), "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
		var level string
		if err == nil {
			err = tx.QueryRow(r.Context(), "SHOW transaction_isolation").Scan(&level)
		}
		_, _ = fmt.Fprint(w, level, err)
	})
	closeAfter(t, locker)
	require.Equal(t, "serializable<nil>", served(h, "POST", "/orders", "k").Body.String())
}

// The page's privileges are enough for all but Migrate, and without one of them Check says
// so.
func TestPrivilegesOfThePage(t *testing.T) {
	t.Parallel()
	var grants []string
	for _, b := range walk.Blocks(t, "../exactly-once.md") {
		if b.Language == "sql" && strings.Contains(b.Text, "GRANT") {
			grants = append(grants, strings.Split(strings.TrimSpace(b.Text), "\n")...)
		}
	}
	require.Len(t, grants, 2)
	admin := shopDatabase(t)
	_, err := admin.Exec(t.Context(), "CREATE ROLE shop LOGIN; GRANT ALL ON orders, outbox TO shop")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY shop; DROP ROLE shop")
		require.NoError(t, err)
	})
	url := strings.Replace(admin.Config().ConnString(), "//postgres@", "//shop@", 1)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	h, locker := ordersOverPostgres(pool, insertOrder)
	closeAfter(t, locker)
	store := locker.Store().(*pgstore.Store)
	for _, grant := range grants {
		require.ErrorIs(t, store.Check(t.Context()), lock.ErrDenied)
		_, err := admin.Exec(t.Context(), grant)
		require.NoError(t, err)
	}
	require.NoError(t, store.Check(t.Context()))
	for range 2 {
		require.Equal(t, http.StatusCreated, served(h, "POST", "/orders", "k").Code)
	}
	_, err = store.Sweep(t.Context(), 100)
	require.NoError(t, err)
	require.Error(t, store.Migrate(t.Context()), "which needs CREATE")
	_, err = pgstore.Open(t.Context(), url)
	require.Error(t, err, "which migrates")
}
