package sqlshop

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

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

// desk accepts jobs under one key, and answers with their outcomes.
type desk struct {
	*Shop

	t      *testing.T
	guard  *lock.Locker // of the requests
	worker *lock.Locker
	ticket string
	fails  bool // the next request
}

// newDesk returns a desk whose requests run in transactions, or outside.
func newDesk(t *testing.T, s *Shop, transactions bool) *desk {
	t.Helper()
	_, err := s.DB.ExecContext(t.Context(), "CREATE TABLE jobs (ticket TEXT)")
	require.NoError(t, err)
	d := &desk{Shop: s, t: t, worker: Locker(t, s.Store)}
	if d.guard = d.worker; !transactions {
		d.guard = lock.New(s.Store, lock.WithBudget(5*time.Second))
		t.Cleanup(func() { CloseLocker(t, d.guard) })
	}
	return d
}

func (d *desk) ask() *httptest.ResponseRecorder {
	d.t.Helper()
	r := httptest.NewRequestWithContext(d.t.Context(), http.MethodPost, "/jobs", nil)
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	latch.Idempotent(d.guard, keyfunc.Global, keyfunc.IdempotencyKey)(http.HandlerFunc(d.accept)).ServeHTTP(w, r)
	return w
}

func (d *desk) accept(w http.ResponseWriter, r *http.Request) {
	var err error
	if d.ticket, err = latch.Later(r.Context()); err == nil && d.guard == d.worker {
		err = d.Exec(r.Context(), "INSERT INTO jobs VALUES ('job')")
	}
	if err != nil || d.fails {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Location", "/jobs/1")
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, "accepted")
}

// TestJobs accepts jobs and answers them later. open returns a new shop.
func TestJobs(t *testing.T, open func(t *testing.T) *Shop) {
	t.Helper()
	for name, test := range map[string]func(t *testing.T, s *Shop){
		"the job and its answer are one commit":                        func(t *testing.T, s *Shop) { t.Helper(); oneCommit(newDesk(t, s, true)) },
		"the job and its answer are one commit, the accepting was not": func(t *testing.T, s *Shop) { t.Helper(); oneCommit(newDesk(t, s, false)) },
		"twin with the answer outside":                                 answerOutside,
		"the job of an abandoned record":                               abandoned,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// The job, its ticket and the 202 are committed together, and so are the worker's row and the
// final answer: a worker that fails in the middle leaves neither.
func oneCommit(d *desk) {
	t := d.t
	if d.guard == d.worker {
		d.fails = true
		require.Equal(t, 500, d.ask().Code)
		require.ErrorContains(t, latch.Finish(t.Context(), d.worker, d.ticket, final), "there is no record of the ticket")
		d.fails = false
	}
	require.Equal(t, 202, d.ask().Code)
	if d.guard == d.worker {
		require.Len(t, Names(t, d.DB, "SELECT ticket FROM jobs"), 1, "of the failed request there is no job")
	}
	work := func(fails error) error {
		_, _, err := d.worker.Once(t.Context(), "job 1", nil, func(ctx context.Context) ([]byte, error) {
			for range 2 {
				if err := latch.Finish(ctx, d.worker, d.ticket, final); err != nil {
					return nil, err
				}
			}
			if err := d.Exec(ctx, d.Insert, "done"); err != nil {
				return nil, err
			}
			require.Equal(t, 202, d.ask().Code, "not committed yet")
			return nil, fails
		})
		return err
	}
	require.ErrorIs(t, work(errRollBack), errRollBack)
	require.Equal(t, 202, d.ask().Code)
	require.Empty(t, d.Orders(t))
	require.NoError(t, work(nil))
	require.NoError(t, work(nil), "delivered twice")
	again := d.ask()
	require.Equal(t, 201, again.Code)
	require.Equal(t, "done", again.Body.String())
	require.Equal(t, []string{"done"}, d.Orders(t))
	require.NoError(t, latch.Finish(t.Context(), d.worker, d.ticket, final))
	require.ErrorIs(t, latch.Finish(t.Context(), d.worker, d.ticket, latch.Answer{Status: 500}), lock.ErrSettled)
}

// Twin: a final answer outside of the transaction stays when the work is rolled back.
func answerOutside(t *testing.T, s *Shop) {
	t.Helper()
	d := newDesk(t, s, true)
	require.Equal(t, 202, d.ask().Code)
	_, _, err := d.worker.Once(t.Context(), "job 1", nil, func(ctx context.Context) ([]byte, error) {
		require.NoError(t, latch.Finish(t.Context(), d.worker, d.ticket, final)) // not with ctx
		require.NoError(t, d.Exec(ctx, d.Insert, "done"))
		return nil, errRollBack
	})
	require.ErrorIs(t, err, errRollBack)
	require.Equal(t, 201, d.ask().Code)
	require.Empty(t, d.Orders(t), "the answer is there, and its order is not")
}

// The process of the handler has vanished before its answer was recorded. In a transaction, Finish
// cannot settle the record together with the worker's rows, and says so. Outside, it settles the record.
func abandoned(t *testing.T, s *Shop) {
	t.Helper()
	d := newDesk(t, s, false)
	record := tickettext.Ticket{Name: "once:abandoned", Token: "vanished", Until: time.Now().Add(time.Hour)}
	ticket, ok := record.Write(tickettext.Answer)
	require.True(t, ok)
	_, err := d.Store.Claim(t.Context(), record.Name, lock.Claim{Token: record.Token, Attempt: 1, Lease: time.Millisecond, Linger: time.Hour})
	require.NoError(t, err)
	Await(t, d.Store, record.Name, lock.Abandoned)
	_, _, err = d.worker.Once(t.Context(), "job 1", nil, func(ctx context.Context) ([]byte, error) {
		return nil, latch.Finish(ctx, d.worker, ticket, final)
	})
	require.ErrorIs(t, err, lock.ErrAbandoned)
	require.NoError(t, latch.Finish(t.Context(), d.worker, ticket, final))
}
