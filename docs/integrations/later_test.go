package integrations_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

const workerOver = "INTEGRATIONS_WORKER_OVER"

func beWorker(queue, url string) error {
	ctx := context.Background()
	if queue == "asynq" {
		options, err := redis.ParseURL(url)
		if err != nil {
			return err
		}
		store, err := redisstore.Open(ctx, url, redisstore.WithPrefix("shop:"))
		if err != nil {
			return err
		}
		orders := redis.NewClient(options)
		return asynqServer(options.Addr, nil).Run(finishOrders(lock.New(store), func(ctx context.Context, id, customer string) error {
			if err := orders.HSetNX(ctx, "orders", id, customer).Err(); err != nil {
				return err
			}
			_, _ = os.Stdout.WriteString("the order is placed\n")
			select {}
		}))
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	client, err := riverWorker(pool, &orderWorker{locker: lock.New(pgstore.New(pool), lock.WithTransaction(), lock.WithLease(4*time.Second), lock.WithBudget(2*time.Second))})
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		return err
	}
	select {}
}

// startWorker starts a worker in another process. line returns the next line that it prints.
func startWorker(t *testing.T, queue, url string) (line func() string, kill func()) {
	t.Helper()
	cmd := exec.Command(must.Get(os.Executable())(t))
	cmd.Env = append(os.Environ(), workerOver+"="+queue+" "+url)
	cmd.Stderr = os.Stderr
	out := must.Get(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	lines := bufio.NewScanner(out)
	return func() string {
		require.True(t, lines.Scan())
		return lines.Text()
	}, kill
}

// riverWorker returns a client that works on orders, and is no leader of River's own upkeep.
func riverWorker(pool *pgxpool.Pool, worker river.Worker[orderArgs]) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, worker)
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}}, Workers: workers,
		FetchCooldown: 5 * time.Millisecond, FetchPollInterval: 10 * time.Millisecond, LeaderElectionDisabled: true,
	})
}

func sender(locker *lock.Locker, accept http.Handler) func() *httptest.ResponseRecorder {
	h := latch.Idempotent(locker, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)(accept)
	return func() *httptest.ResponseRecorder { return guardtest.Serve(h, guardtest.Keyed("k")) }
}

// doubledWorker is orderWorker without the ticket.
type doubledWorker struct {
	river.WorkerDefaults[orderArgs]

	pool *pgxpool.Pool
}

func (d *doubledWorker) Work(ctx context.Context, job *river.Job[orderArgs]) error {
	_, err := d.pool.Exec(ctx, `INSERT INTO orders (customer) VALUES ($1)`, job.Args.Customer)
	return err
}

// A worker is killed in its transaction, and River delivers the job again, in addition to a second
// job with the same ticket: there is one order, and one final answer. Without the ticket there are two.
func TestRiverPlacesAnAcceptedOrderOnce(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "starts a database, and waits for the lease of a killed worker")
	t.Parallel()
	for name, guarded := range map[string]bool{"ticket": true, "none": false} {
		parallel.Run(t, name, func(t *testing.T) {
			url := pgtest.DatabaseURL(t)
			pool := must.Get(pgxpool.New(t.Context(), url))(t)
			t.Cleanup(pool.Close)
			must.Get(must.Get(rivermigrate.New(riverpgxv5.New(pool), nil))(t).Migrate(t.Context(), rivermigrate.DirectionUp, nil))(t)
			// An insert waits for the advisory lock 1: the worker is killed there.
			must.Get(pool.Exec(t.Context(), pgstore.Schema+`
				CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, customer text);
				CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$;
				CREATE TRIGGER wait AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION wait()`))(t)
			store := pgstore.New(pool)
			t.Cleanup(store.Close)
			locker := newLocker(t, store, lock.WithTransaction(), lock.WithWait(20*time.Second))
			var worker river.Worker[orderArgs] = &orderWorker{locker: locker}
			if !guarded {
				worker = &doubledWorker{pool: pool}
			}
			client := must.Get(riverWorker(pool, worker))(t)
			send := sender(locker, acceptWithRiver(client))
			require.Equal(t, http.StatusAccepted, send().Code)
			count := func(statement string) (n int) {
				require.NoError(t, pool.QueryRow(t.Context(), statement).Scan(&n))
				return n
			}
			require.Equal(t, 1, count("SELECT count(*) FROM river_job"))

			holder := must.Get(pgx.Connect(t.Context(), url))(t)
			must.Get(holder.Exec(t.Context(), "SELECT pg_advisory_lock(1)"))(t)
			_, kill := startWorker(t, "river", url)
			eventually(t, func() bool {
				return count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'") == 1
			}, "no worker has inserted the order")
			kill()
			require.NoError(t, holder.Close(t.Context()))
			require.Equal(t, http.StatusAccepted, send().Code)
			require.Zero(t, count("SELECT count(*) FROM orders"))

			// River's own upkeep makes a job available whose worker has been silent for an hour.
			must.Get(pool.Exec(t.Context(), `UPDATE river_job SET state = 'available'`))(t)
			must.Get(pool.Exec(t.Context(), `INSERT INTO river_job (args, kind, max_attempts) SELECT args, kind, max_attempts FROM river_job`))(t)
			require.NoError(t, client.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, client.Stop(context.WithoutCancel(t.Context()))) })
			eventually(t, func() bool { return count("SELECT count(*) FROM river_job WHERE state = 'completed'") == 2 }, "jobs are left")
			if !guarded {
				require.Equal(t, 2, count("SELECT count(*) FROM orders"))
				require.Equal(t, http.StatusAccepted, send().Code)
				return
			}
			require.Equal(t, 1, count("SELECT count(*) FROM orders"))
			final := send()
			require.Equal(t, http.StatusCreated, final.Code)
			require.Regexp(t, `^\{"order":\d+\}$`, final.Body.String())
		})
	}
}

// A worker is killed after it has placed the order, and before Finish. Two more copies of the task
// find the order by its ID. Tasks without an order's ID place one each.
func TestAsynqPlacesAnAcceptedOrderOnce(t *testing.T) {
	t.Parallel()
	for name, guarded := range map[string]bool{"ticket": true, "none": false} {
		parallel.Run(t, name, func(t *testing.T) {
			locker, server := overRedis(t)
			b := newAsynqBroker(t, server.Addr())
			orders := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { require.NoError(t, orders.Close()) })
			send := sender(locker, acceptWithAsynq(b.client, rand.Text))
			accepted := send()
			require.Equal(t, http.StatusAccepted, accepted.Code)
			info := must.Get(b.inspector.ListPendingTasks("default"))(t)
			require.Len(t, info, 1)

			placed, kill := startWorker(t, "asynq", server.URL())
			placed()
			kill()
			require.Equal(t, accepted.Body.String(), send().Body.String())
			for range 2 { // asynq itself delivers the first task again when its lease of 30 s is over
				must.Get(b.client.Enqueue(asynq.NewTask("order", info[0].Payload)))(t)
			}
			worker := finishOrders(locker, func(ctx context.Context, id, customer string) error {
				return orders.HSetNX(ctx, "orders", id, customer).Err()
			})
			if !guarded {
				worker = func(ctx context.Context, _ *asynq.Task) error {
					return orders.HSet(ctx, "orders", rand.Text(), "42").Err()
				}
			}
			b.serve(t, nil, worker)
			eventually(t, func() bool {
				info, err := b.inspector.GetQueueInfo("default")
				return err == nil && info.ProcessedTotal >= 2 && info.Pending+info.Retry == 0
			}, "tasks are left")
			if !guarded {
				require.Greater(t, orders.HLen(t.Context(), "orders").Val(), int64(1))
				require.Equal(t, http.StatusAccepted, send().Code)
				return
			}
			require.Equal(t, int64(1), orders.HLen(t.Context(), "orders").Val())
			require.Equal(t, http.StatusCreated, send().Code)
		})
	}
}

// acceptedOrder is the payload of a task.
type acceptedOrder struct {
	ID       string `json:"id"` // of the order: with it, a second delivery finds the first
	Customer string `json:"customer"`
	Ticket   string `json:"ticket"`
}

func acceptWithAsynq(queue *asynq.Client, newID func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		order := acceptedOrder{ID: newID(), Customer: r.Header.Get("X-User-ID")}
		var err error
		if order.Ticket, err = latch.Later(ctx); err == nil {
			err = lock.Commit(ctx) // from here on, a second run would enqueue a second task
		}
		var payload []byte
		if err == nil {
			payload, err = json.Marshal(order)
		}
		if err == nil {
			_, err = queue.EnqueueContext(ctx, asynq.NewTask("order", payload), asynq.TaskID(order.ID))
		}
		if err != nil {
			http.Error(w, "the order may have been accepted", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Location", "/orders/"+order.ID)
		w.WriteHeader(http.StatusAccepted)
	}
}

// finishOrders places accepted orders. place has no effect for an ID that it has placed.
func finishOrders(locker *lock.Locker, place func(ctx context.Context, id, customer string) error) asynq.HandlerFunc {
	return func(ctx context.Context, task *asynq.Task) error {
		var order acceptedOrder
		if err := json.Unmarshal(task.Payload(), &order); err != nil {
			return fmt.Errorf("%w: %w", asynq.SkipRetry, err)
		}
		if err := place(ctx, order.ID, order.Customer); err != nil {
			return err
		}
		err := latch.Finish(ctx, locker, order.Ticket, latch.Answer{
			Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: fmt.Appendf(nil, `{"order":%q}`, order.ID),
		})
		if errors.Is(err, lock.ErrLost) {
			return nil // the record of this ticket is over
		}
		return err
	}
}

type orderArgs struct {
	Customer string `json:"customer"`
	Ticket   string `json:"ticket"`
}

func (orderArgs) Kind() string { return "order" }

func acceptWithRiver(queue *river.Client[pgx.Tx]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		tx, _ := pgstore.Tx(ctx) // begun by the guard, and committed with the answer
		ticket, err := latch.Later(ctx)
		if err == nil {
			_, err = queue.InsertTx(ctx, tx, orderArgs{r.Header.Get("X-User-ID"), ticket}, nil)
		}
		if err != nil {
			http.Error(w, "try again later", http.StatusServiceUnavailable) // not kept, so there is no job either
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

// orderWorker places each accepted order once, however often River delivers it.
type orderWorker struct {
	river.WorkerDefaults[orderArgs]

	locker *lock.Locker // over the database of the jobs, with lock.WithTransaction()
}

func (o *orderWorker) Work(ctx context.Context, job *river.Job[orderArgs]) error {
	_, _, err := o.locker.Once(ctx, lock.Key("river", fmt.Sprint(job.ID)), nil, func(ctx context.Context) ([]byte, error) {
		tx, _ := pgstore.Tx(ctx)
		var order int64
		if err := tx.QueryRow(ctx, `INSERT INTO orders (customer) VALUES ($1) RETURNING id`, job.Args.Customer).Scan(&order); err != nil {
			return nil, err
		}
		return nil, latch.Finish(ctx, o.locker, job.Args.Ticket, latch.Answer{
			Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: fmt.Appendf(nil, `{"order":%d}`, order),
		})
	})
	switch {
	case errors.Is(err, lock.ErrSettled):
		return nil // another job with this ticket was done: this order is rolled back
	case errors.Is(err, lock.ErrHeld), errors.Is(err, lock.ErrUnavailable):
		return river.JobSnooze(5 * time.Second) // costs none of the attempts
	}
	return err
}
