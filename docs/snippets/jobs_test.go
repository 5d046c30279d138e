package snippets_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/walk"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/pgstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func startExport(locker *lock.Locker, enqueue func(ctx context.Context, tenant, ticket string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, tenant := r.Context(), r.Header.Get("X-Tenant")
		lease, err := locker.Acquire(ctx, lock.Key("export", tenant))
		if p := latch.ProblemOf(err); p != nil {
			p.ServeHTTP(w, r) // 409: an export of this tenant runs, or waits for a worker
			return
		}
		if err != nil {
			return // the client has gone
		}
		defer func() { _ = lease.Release(ctx) }() // does nothing once the lease is handed over
		ticket, err := lease.HandOver(ctx, 10*time.Minute)
		if err == nil {
			err = enqueue(ctx, tenant, ticket)
		}
		if err != nil {
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

func workOnExport(ctx context.Context, locker *lock.Locker, tenant, ticket string, export func(ctx context.Context, tenant string) error) error {
	lease, err := locker.Resume(ctx, ticket)
	if errors.Is(err, lock.ErrLost) {
		return nil // another worker has it, or it is too late: the caller asks for another export
	}
	if err != nil {
		return err // the queue delivers it again
	}
	defer func() { _ = lease.Release(ctx) }()
	return export(lease.Context(), tenant)
}

func acceptOrder(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	tx, _ := pgstore.Tx(ctx) // begun by the guard, and committed with the answer
	ticket, err := latch.Later(ctx)
	var id int64
	if err == nil {
		err = tx.QueryRow(ctx, `INSERT INTO jobs (customer, ticket) VALUES ($1, $2) RETURNING id`, auth.UserID(ctx), ticket).Scan(&id)
	}
	if err != nil {
		http.Error(w, "try again later", http.StatusServiceUnavailable) // not kept, so there is no job either
		return
	}
	w.Header().Set("Location", fmt.Sprintf("/jobs/%d", id))
	w.WriteHeader(http.StatusAccepted)
}

// workOnJobs works on all jobs that are due. Several processes may call it at the same time.
func workOnJobs(ctx context.Context, locker *lock.Locker, pool *pgxpool.Pool) error {
	for {
		var id int64
		var customer, ticket string
		err := pool.QueryRow(ctx, `UPDATE jobs SET due = now() + interval '1 minute'
			WHERE id = (SELECT id FROM jobs WHERE due <= now() ORDER BY due LIMIT 1 FOR UPDATE SKIP LOCKED)
			RETURNING id, customer, ticket`).Scan(&id, &customer, &ticket)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		_, _, err = locker.Once(ctx, lock.Key("job", fmt.Sprint(id)), nil, func(ctx context.Context) ([]byte, error) {
			return nil, placeAccepted(ctx, locker, id, customer, ticket)
		})
		if err != nil {
			return err // rolled back, and due again in a minute
		}
	}
}

// placeAccepted inserts the order, gives the final answer, and ends the job, in one transaction.
func placeAccepted(ctx context.Context, locker *lock.Locker, job int64, customer, ticket string) error {
	tx, _ := pgstore.Tx(ctx)
	var order int64
	if err := tx.QueryRow(ctx, `INSERT INTO orders (customer) VALUES ($1) RETURNING id`, customer).Scan(&order); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]int64{"order": order})
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM jobs WHERE id = $1`, job)
	if err != nil {
		return err
	}
	err = latch.Finish(ctx, locker, ticket, latch.Answer{
		Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: body,
	})
	if errors.Is(err, lock.ErrLost) {
		return nil // the record is over, so no repeat asks for the answer; the order was accepted, and is placed
	}
	return err
}

// An export whose ticket is delivered twice runs once, and refuses others until it is done.
func TestExportInAWorker(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, memstore.New())
	var ticket string
	h := startExport(locker, func(_ context.Context, _, of string) error { ticket = of; return nil })
	start := func() int { return do(h, http.MethodPost, "/exports", "", "X-Tenant", "acme").Code }
	require.Equal(t, http.StatusAccepted, start())
	require.Equal(t, http.StatusConflict, start())
	runs := 0
	export := func(context.Context, string) error { //nolint:unparam // as workOnExport wants it
		runs++
		require.Equal(t, http.StatusConflict, start())
		return nil
	}
	require.NoError(t, workOnExport(t.Context(), locker, "acme", ticket, func(ctx context.Context, tenant string) error {
		require.NoError(t, workOnExport(ctx, locker, "acme", ticket, export), "delivered again, while the first works")
		return export(ctx, tenant)
	}))
	require.Error(t, workOnExport(t.Context(), locker, "acme", ticket, export), "the ticket does not show that it is done")
	require.Equal(t, 1, runs)
	require.Equal(t, http.StatusAccepted, start())
}

// A handler that cannot hand its lease over frees the key, whatever the reason. Before, the key was
// held for WithMaxHold, because the handler has left no ticket and no release.
func TestExportThatIsNotHandedOver(t *testing.T) {
	t.Parallel()
	refused := errors.Join(lock.ErrNotApplied, errors.New("READONLY"))
	always, ticket := func(lock.Claim) bool { return true }, func(c lock.Claim) bool { return c.ReplacesHeld }
	for name, tt := range map[string]struct {
		tenant       string
		down         func(c lock.Claim) bool
		store, queue error
		free         time.Duration // the key, after the answer
	}{
		"a long tenant": {tenant: strings.Repeat("a", 301)},
		"the store is down, and the handler runs unprotected": {"acme", always, refused, nil, 0},
		"the store is down for the ticket":                    {"acme", ticket, refused, nil, time.Second},
		"the store does not answer for the ticket":            {"acme", ticket, errors.New("no answer"), nil, time.Second},
		"the queue is down":                                   {"acme", nil, nil, errors.New("down"), 10 * time.Minute},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := memstore.New()
				store := &guardtest.StubStore{Store: memory, OnClaim: func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
					if tt.down != nil && tt.down(c) {
						return lock.Entry{}, tt.store
					}
					return memory.Claim(ctx, key, c)
				}}
				locker := newLocker(t, store, lock.WithFailOpen(), lock.WithLogger(guardtest.Quiet))
				h := startExport(locker, func(context.Context, string, string) error { return tt.queue })
				require.Equal(t, http.StatusServiceUnavailable, do(h, http.MethodPost, "/exports", "", "X-Tenant", tt.tenant).Code)
				store.OnClaim = nil
				time.Sleep(tt.free)
				require.Zero(t, locker.Stats().Active)
				require.NoError(t, locker.Do(t.Context(), lock.Key("export", tt.tenant), func(context.Context) error { return nil }))
			})
		})
	}
}

// A worker that fails leaves the 202. The next gives one order, and the final answer.
func TestOrderInAWorker(t *testing.T) {
	t.Parallel()
	pool := must.Get(pgxpool.New(t.Context(), pgtest.DatabaseURL(t)))(t)
	t.Cleanup(pool.Close)
	tables := "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, customer text);"
	for _, b := range walk.Blocks(t, "../jobs.md") {
		if b.Language == "sql" {
			tables += b.Text
		}
	}
	must.Get(pool.Exec(t.Context(), tables+pgstore.Schema))(t)
	locker := lock.New(pgstore.New(pool), lock.WithTransaction(), lock.WithBudget(5*time.Second))
	closeAfter(t, locker)
	h := auth.Require(latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)(http.HandlerFunc(acceptOrder)))
	send := func() *httptest.ResponseRecorder { return served(h, "POST", "/orders", "k") }
	for range 2 {
		w := send()
		require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
		require.Equal(t, "/jobs/1", w.Header().Get("Location"))
	}
	for range 2 {
		require.NoError(t, workOnJobs(t.Context(), locker, pool))
		w := send()
		require.Equal(t, http.StatusCreated, w.Code)
		require.JSONEq(t, `{"order":1}`, w.Body.String())
	}
	require.Equal(t, 1, rowsOf(t, pool, "orders"))
	require.Zero(t, rowsOf(t, pool, "jobs"))
}
