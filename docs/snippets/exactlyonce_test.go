package snippets_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/walk"
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

// sendMails sends what is due in the outbox. One process at a time does, which is enough. A
// mail that cannot be sent is due again later, and holds up none of the others.
func sendMails(ctx context.Context, locker *lock.Locker, pool *pgxpool.Pool, send func(ctx context.Context, id int64, to, text string) error) error {
	return locker.Do(ctx, lock.Key("outbox", "mail"), func(ctx context.Context) (failed error) {
		for {
			var id int64
			var to, text string
			err := pool.QueryRow(ctx, `UPDATE outbox SET tries = tries + 1, due = now() + least(tries + 1, 60) * interval '1 minute'
				WHERE id = (SELECT id FROM outbox WHERE due <= now() ORDER BY tries, due, id LIMIT 1)
				RETURNING id, recipient, text`).Scan(&id, &to, &text)
			if errors.Is(err, pgx.ErrNoRows) {
				return failed
			}
			if err != nil {
				return err
			}
			bounded, cancel := context.WithTimeout(ctx, 10*time.Second) // for a server that does not answer
			err = send(bounded, id, to, text)                           // with id as its Message-ID, or as the provider's idempotency key
			cancel()
			if err != nil {
				failed = err
				continue
			}
			if _, err := pool.Exec(ctx, `DELETE FROM outbox WHERE id = $1`, id); err != nil {
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
	switch err := bank.Charge(ctx, auth.UserID(ctx), key); {
	case errors.Is(err, errCardRefused):
		http.Error(w, "the card was refused", http.StatusPaymentRequired)
		return
	case err != nil: // it may be charged: the next try, with the same key, finds out
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	// From here on no failure makes it run again, not even that of this process.
	if err := lock.Commit(ctx); err != nil {
		slog.WarnContext(ctx, "the charge was made, and is not noted", "error", err) // nor taken back
	}
	if _, err := tx.Exec(ctx, `INSERT INTO payments (customer, key) VALUES ($1, $2)`, auth.UserID(ctx), key); err != nil {
		http.Error(w, "the card was charged", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// testBank has idempotency keys. It loses its first answer to the key "unanswered".
type testBank struct{ charged, refunded sync.Map }

var errCardRefused = errors.New("the card was refused")

func (b *testBank) Charge(_ context.Context, user, key string) error {
	if key == "refused" {
		return errCardRefused
	}
	if _, again := b.charged.Swap(user+" "+key, true); !again && key == "unanswered" {
		return errors.New("no answer")
	}
	return nil
}

func (b *testBank) Refund(_ context.Context, user, key string) {
	b.refunded.Store(user+" "+key, true)
}

func (b *testBank) paid(key string) bool {
	_, charged := b.charged.Load("42 " + key)
	_, refunded := b.refunded.Load("42 " + key)
	return charged && !refunded
}

func outboxOfThePage(t *testing.T) string {
	t.Helper()
	for _, b := range walk.Blocks(t, "../exactly-once.md") {
		if b.Language == "sql" && strings.Contains(b.Text, "CREATE TABLE outbox") {
			return b.Text
		}
	}
	require.Fail(t, "the page does not say what an outbox is")
	return ""
}

func shopDatabase(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := must.Get(pgxpool.New(t.Context(), pgtest.DatabaseURL(t)))(t)
	t.Cleanup(pool.Close)
	must.Get(pool.Exec(t.Context(), `
		CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, customer text);
		`+outboxOfThePage(t)+pgstore.Schema))(t)
	return pool
}

// overPostgres has the routes of the page before handler.
func overPostgres(t *testing.T, handler http.HandlerFunc) (*pgxpool.Pool, http.Handler, *lock.Locker) {
	t.Helper()
	pool := shopDatabase(t)
	h, locker := ordersOverPostgres(pool, handler)
	must.Get(locker.Store().Get(t.Context(), "none"))(t) // dials, which may take longer than the budget
	closeAfter(t, locker)
	return pool, h, locker
}

func closeAfter(t *testing.T, l *lock.Locker) {
	t.Helper()
	t.Cleanup(func() {
		guardtest.RequireCloses(t, l)
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
	pool, h, locker := overPostgres(t, insertOrder)
	must.Get(pool.Exec(t.Context(), "ALTER TABLE outbox RENAME TO away"))(t)
	require.Equal(t, http.StatusServiceUnavailable, ask(h, "POST", "/orders", "k").Code)
	require.Zero(t, rowsOf(t, pool, "orders"), "a failure leaves neither the order nor its e-mail")
	must.Get(pool.Exec(t.Context(), "ALTER TABLE away RENAME TO outbox"))(t)
	first := served(h, "POST", "/orders", "k")
	require.Equal(t, http.StatusCreated, first.Code, first.Body)
	again := served(h, "POST", "/orders", "k")
	require.True(t, replayed(again))
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
	require.NoError(t, sendMails(t.Context(), locker, pool, send))
	require.Empty(t, sent, "it is not due yet")
	passMinute(t, pool)
	for range 2 {
		require.NoError(t, sendMails(t.Context(), locker, pool, send))
	}
	require.Equal(t, []string{"42: Thank you for order " + strings.Trim(first.Body.String(), `{"id:}`) + "."}, sent)
}

func passMinute(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	must.Get(pool.Exec(t.Context(), "UPDATE outbox SET due = due - interval '1 minute'"))(t)
}

// An address that fails holds up no other, whichever was first. A mail server that does not answer holds them up for a
// while, and what has failed before comes after all that has not.
func TestOutboxWithAddressesThatFail(t *testing.T) {
	t.Parallel()
	pool, _, locker := overPostgres(t, insertOrder)
	_, err := pool.Exec(t.Context(), `INSERT INTO outbox (recipient, text, tries) VALUES ('hangs', '0', 3);
		INSERT INTO outbox (recipient, text) SELECT CASE WHEN i % 3 = 1 THEN 'gone' ELSE 'there' END, i::text FROM generate_series(1, 9) AS i`)
	require.NoError(t, err)
	var sent []string
	tries := 0
	gone := errors.New("no such mailbox")
	send := func(ctx context.Context, _ int64, to, text string) error {
		switch to {
		case "gone":
			tries++
			return gone
		case "hangs":
			until, bounded := ctx.Deadline()
			require.True(t, bounded && time.Until(until) < time.Minute, "it would wait for ever")
			require.Equal(t, 3, tries, "all others come first")
			return context.DeadlineExceeded
		}
		sent = append(sent, text)
		return nil
	}
	require.ErrorIs(t, sendMails(t.Context(), locker, pool, send), context.DeadlineExceeded)
	require.Equal(t, []string{"2", "3", "5", "6", "8", "9"}, sent)
	require.Equal(t, 4, rowsOf(t, pool, "outbox"))
	passMinute(t, pool)
	require.ErrorIs(t, sendMails(t.Context(), locker, pool, send), gone)
	passMinute(t, pool)
	require.NoError(t, sendMails(t.Context(), locker, pool, send), "the second time it waits for longer")
	require.Equal(t, 6, tries)
	require.Len(t, sent, 6)
}

// After lock.Commit, the card is not charged again, whatever becomes of the rows.
func TestChargeOfThePage(t *testing.T) {
	t.Parallel()
	charges := 0
	_, h, _ := overPostgres(t, func(w http.ResponseWriter, r *http.Request) { // without the table of payments
		charges++
		chargeOrder(w, r)
	})
	first := served(h, "POST", "/orders", "rolled-back")
	require.Equal(t, http.StatusInternalServerError, first.Code, first.Body)
	require.Equal(t, "the card was charged\n", first.Body.String(), "the handler knows best what it has done")
	again := ask(h, "POST", "/orders", "rolled-back")
	require.Equal(t, http.StatusConflict, again.Code)
	require.Contains(t, again.Body.String(), "result-not-replayable")
	require.Equal(t, 1, charges)
	require.True(t, bank.paid("rolled-back"))
}

// A charge without an answer may have been made: the next try finds out. A refusal is an answer.
func TestChargeWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	pool, h, _ := overPostgres(t, chargeOrder)
	must.Get(pool.Exec(t.Context(), "CREATE TABLE payments (customer text, key text)"))(t)
	for !bank.paid("unanswered") {
		require.Equal(t, http.StatusServiceUnavailable, ask(h, "POST", "/orders", "unanswered").Code)
	}
	require.Equal(t, http.StatusNoContent, served(h, "POST", "/orders", "unanswered").Code)
	require.Equal(t, 1, rowsOf(t, pool, "payments"))
	for range 2 {
		require.Equal(t, http.StatusPaymentRequired, served(h, "POST", "/orders", "refused").Code)
	}
	require.Equal(t, 1, rowsOf(t, pool, "payments"))
}

type forgetful struct{ *pgstore.Store }

func (forgetful) Renew(context.Context, string, lock.Claim) (bool, error) {
	return false, errors.New("no answer")
}

// refundOrder is chargeOrder as it must not be.
func refundOrder(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	key, _ := keyfunc.IdempotencyKey(r)
	if bank.Charge(ctx, auth.UserID(ctx), key) == nil && lock.Commit(ctx) != nil {
		bank.Refund(ctx, auth.UserID(ctx), key)
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	}
}

// A charge that cannot be noted is an order all the same. With a refund, the customer who
// tries again gets neither an order nor an answer.
func TestChargeThatIsNotNoted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		first   int
		again   int
		placed  int
	}{
		"goes-on": {chargeOrder, http.StatusNoContent, http.StatusNoContent, 1},
		"refunds": {refundOrder, http.StatusServiceUnavailable, http.StatusConflict, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := shopDatabase(t)
			must.Get(pool.Exec(t.Context(), "CREATE TABLE payments (customer text, key text)"))(t)
			store := pgstore.New(pool)
			locker := lock.New(forgetful{store}, lock.WithTransaction(), lock.WithBudget(5*time.Second))
			t.Cleanup(store.Close)
			t.Cleanup(func() { guardtest.RequireCloses(t, locker) })
			h := auth.Require(latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)(tt.handler))
			require.Equal(t, tt.first, ask(h, "POST", "/orders", name).Code)
			again := ask(h, "POST", "/orders", name)
			require.Equal(t, tt.again, again.Code, again.Body)
			require.Equal(t, tt.placed, rowsOf(t, pool, "payments"))
			require.Equal(t, tt.placed == 1, bank.paid(name), "who pays has an order")
		})
	}
}
