package sqlitestore_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/tickettext"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

var (
	errRollBack = errors.New("roll back")
	final       = latch.Answer{Status: http.StatusCreated, Body: []byte("done")}
)

// jobDesk accepts jobs under one key, and answers with their outcomes.
type jobDesk struct {
	*shop

	guard  *lock.Locker // of the requests
	ticket string
	fails  bool // the next request
}

func (d *jobDesk) ask(t *testing.T) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/jobs", nil)
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	latch.Idempotent(d.guard, keyfunc.Global, keyfunc.IdempotencyKey)(http.HandlerFunc(d.accept)).ServeHTTP(w, r)
	return w
}

func (d *jobDesk) accept(w http.ResponseWriter, r *http.Request) {
	var err error
	if d.ticket, err = latch.Later(r.Context()); err == nil {
		if err = exec(r.Context(), "INSERT INTO jobs VALUES (?)", d.ticket); errors.Is(err, errNoTx) {
			_, err = d.store.DB().ExecContext(r.Context(), "INSERT INTO jobs VALUES (?)", d.ticket)
		}
	}
	if err != nil || d.fails {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Location", "/jobs/1")
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, "accepted")
}

// openDesk returns a desk whose requests run in transactions, or whose receipts are in the file of
// claims.
func openDesk(t *testing.T, transactions bool) (d *jobDesk, worker *lock.Locker) {
	t.Helper()
	d = &jobDesk{shop: openShop(t)}
	d.exec(t, "CREATE TABLE jobs (ticket TEXT)")
	worker = d.locker(t)
	if d.guard = worker; !transactions {
		d.guard = lock.New(d.store, lock.WithLogger(quiet), lock.WithBudget(5*time.Second))
		t.Cleanup(func() { require.NoError(t, d.guard.Close(context.WithoutCancel(t.Context()))) })
	}
	return d, worker
}

// The job, its ticket and the 202 are committed together, and so are the worker's row and the
// final answer: a worker that fails in the middle leaves neither. That holds for a receipt that
// is in the file of the claims, too.
func TestJobAndAnswerAreOneCommit(t *testing.T) {
	t.Parallel()
	for name, transactions := range map[string]bool{"a receipt in the database": true, "a receipt in the file of the claims": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, worker := openDesk(t, transactions)
			if transactions {
				d.fails = true
				require.Equal(t, 500, d.ask(t).Code)
				require.ErrorContains(t, latch.Finish(t.Context(), worker, d.ticket, final), "there is no record of the ticket")
				d.fails = false
			}
			require.Equal(t, 202, d.ask(t).Code)
			work := func(fails error) error {
				_, _, err := worker.Once(t.Context(), "job 1", nil, func(ctx context.Context) ([]byte, error) {
					for range 2 {
						if err := latch.Finish(ctx, worker, d.ticket, final); err != nil {
							return nil, err
						}
					}
					if err := exec(ctx, insert, "done"); err != nil {
						return nil, err
					}
					require.Equal(t, 202, d.ask(t).Code, "not committed yet")
					return nil, fails
				})
				return err
			}
			require.ErrorIs(t, work(errRollBack), errRollBack)
			require.Equal(t, 202, d.ask(t).Code)
			require.Empty(t, d.orders(t))
			require.NoError(t, work(nil))
			require.NoError(t, work(nil), "delivered twice")
			again := d.ask(t)
			require.Equal(t, 201, again.Code)
			require.Equal(t, "done", again.Body.String())
			require.Equal(t, []string{"done"}, d.orders(t))
			require.NoError(t, latch.Finish(t.Context(), worker, d.ticket, final))
			require.ErrorIs(t, latch.Finish(t.Context(), worker, d.ticket, latch.Answer{Status: 500}), lock.ErrSettled)
		})
	}
}

// Twin: a final answer outside of the transaction stays when the work is rolled back.
func TestTwinWithTheAnswerOutside(t *testing.T) {
	t.Parallel()
	d, worker := openDesk(t, true)
	require.Equal(t, 202, d.ask(t).Code)
	_, _, err := worker.Once(t.Context(), "job 1", nil, func(ctx context.Context) ([]byte, error) {
		require.NoError(t, latch.Finish(t.Context(), worker, d.ticket, final)) // not with ctx
		require.NoError(t, exec(ctx, insert, "done"))
		return nil, errRollBack
	})
	require.ErrorIs(t, err, errRollBack)
	require.Equal(t, 201, d.ask(t).Code)
	require.Empty(t, d.orders(t), "the answer is there, and its order is not")
}

// Of an amend in work that is in progress and one of another process, one succeeds, wherever
// the receipt is.
func TestAmendBesideWorkThatAmends(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ transaction, commits bool }{
		"in the database, committed":             {true, true},
		"in the database, rolled back":           {true, false},
		"in the file of the claims, committed":   {false, true},
		"in the file of the claims, rolled back": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t)
			other := open(t, s.path)
			if tt.transaction {
				_, tx, _ := s.begin(t, "k")
				ok, err := tx.Settle(t.Context(), []byte("accepted"), time.Hour)
				require.NoError(t, err)
				require.True(t, ok)
			} else {
				claim(t, s.store, "k", "token of k")
				ok, err := s.store.Settle(t.Context(), "k", lock.Claim{Token: "token of k"}, []byte("accepted"), time.Hour)
				require.NoError(t, err)
				require.True(t, ok)
			}
			before, err := s.store.Get(t.Context(), "k")
			require.NoError(t, err)

			ctx, work, _ := s.begin(t, "job")
			ok, err := s.store.Amend(ctx, "k", "token of k", []byte("accepted"), []byte("by work"))
			require.NoError(t, err)
			require.True(t, ok)
			require.Eventually(t, func() bool { // a machine that is busy may not let it begin to wait
				impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				ok, err := other.Amend(impatient, "k", "token of k", []byte("accepted"), []byte("by another"))
				assert.Error(t, err)
				assert.False(t, ok)
				return errors.Is(err, lock.ErrNotApplied)
			}, 20*time.Second, time.Millisecond, "it waits for the work")
			if tt.commits {
				ok, err = work.Settle(t.Context(), nil, time.Hour)
				require.NoError(t, err)
				require.True(t, ok)
			} else {
				require.NoError(t, work.Rollback(t.Context()))
			}
			ok, err = other.Amend(t.Context(), "k", "token of k", []byte("accepted"), []byte("by another"))
			require.NoError(t, err)
			require.Equal(t, !tt.commits, ok)

			want := map[bool]string{true: "by work", false: "by another"}[tt.commits]
			for _, store := range []lock.Store{s.store, other} {
				e, err := store.Get(t.Context(), "k")
				require.NoError(t, err)
				require.Equal(t, want, string(e.Receipt))
				require.LessOrEqual(t, e.Left, before.Left)
				require.Greater(t, e.Left, before.Left-time.Minute)
				e.Receipt, e.Left = before.Receipt, before.Left
				require.Equal(t, before, e)
			}
			n := 0
			for e, err := range other.List(t.Context()) {
				require.NoError(t, err)
				if e.Key == "k" {
					n++
					require.Equal(t, want, string(e.Receipt))
				}
			}
			require.Equal(t, 1, n)
		})
	}
}

// The process of the handler has vanished before its answer was recorded. In a transaction, Finish
// cannot settle the record together with the worker's rows, and says so. Outside, it settles the record.
func TestFinishOfAnAbandonedRecordInATransaction(t *testing.T) {
	t.Parallel()
	d, worker := openDesk(t, false)
	record := tickettext.Ticket{Name: "once:abandoned", Token: "vanished", Until: time.Now().Add(time.Hour)}
	ticket, ok := record.Write(tickettext.Answer)
	require.True(t, ok)
	_, err := d.store.Claim(t.Context(), record.Name, lock.Claim{Token: record.Token, Attempt: 1, Lease: time.Millisecond, Linger: time.Hour})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		e, err := d.store.Get(t.Context(), record.Name)
		return err == nil && e.State == lock.Abandoned
	}, 10*time.Second, time.Millisecond)
	_, _, err = worker.Once(t.Context(), "job 1", nil, func(ctx context.Context) ([]byte, error) {
		return nil, latch.Finish(ctx, worker, ticket, final)
	})
	require.ErrorIs(t, err, lock.ErrAbandoned)
	require.NoError(t, latch.Finish(t.Context(), worker, ticket, final))
}
