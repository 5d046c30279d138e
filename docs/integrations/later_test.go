package integrations_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
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

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// workerOver is the environment variable by which this program is a worker that a test kills.
const workerOver = "INTEGRATIONS_WORKER_OVER"

// beWorker works on jobs until it is killed. It returns an error if it cannot.
func beWorker(queue, url string) error {
	ctx := context.Background()
	if strings.HasPrefix(queue, "mcp") {
		return beMCP(queue, url)
	}
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
		return asynqServer(options.Addr).Run(finishOrders(lock.New(store), func(ctx context.Context, id, customer string) error {
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

// startWorker starts a worker in another process. Its first line ends started.
func startWorker(t *testing.T, queue, url string) (kill, started func()) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), workerOver+"="+queue+" "+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	return kill, func() {
		_, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
	}
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

func asynqServer(addr string) *asynq.Server {
	config := asynqConfig()
	config.Concurrency, config.LogLevel, config.TaskCheckInterval = 4, asynq.FatalLevel, 5*time.Millisecond
	return asynq.NewServer(asynq.RedisClientOpt{Addr: addr}, config)
}

// sender returns a function that sends the same order each time, through the guard.
func sender(locker *lock.Locker, accept http.Handler) func() *httptest.ResponseRecorder {
	h := latch.Idempotent(locker, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)(accept)
	return func() *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/orders", http.NoBody)
		r.Header.Set("X-User-ID", "42")
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.DatabaseURL(t)
			pool, err := pgxpool.New(t.Context(), url)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
			require.NoError(t, err)
			_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
			require.NoError(t, err)
			// An insert waits for the advisory lock 1: the worker is killed there.
			_, err = pool.Exec(t.Context(), pgstore.Schema+`
				CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, customer text);
				CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$;
				CREATE TRIGGER wait AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION wait()`)
			require.NoError(t, err)
			store := pgstore.New(pool)
			t.Cleanup(store.Close)
			locker := newLocker(t, store, lock.WithTransaction(), lock.WithWait(20*time.Second))
			var worker river.Worker[orderArgs] = &orderWorker{locker: locker}
			if !guarded {
				worker = &doubledWorker{pool: pool}
			}
			client, err := riverWorker(pool, worker)
			require.NoError(t, err)
			send := sender(locker, acceptWithRiver(client))
			require.Equal(t, http.StatusAccepted, send().Code)
			count := func(statement string) (n int) {
				require.NoError(t, pool.QueryRow(t.Context(), statement).Scan(&n))
				return n
			}
			require.Equal(t, 1, count("SELECT count(*) FROM river_job"))

			holder, err := pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			_, err = holder.Exec(t.Context(), "SELECT pg_advisory_lock(1)")
			require.NoError(t, err)
			kill, _ := startWorker(t, "river", url)
			eventually(t, func() bool {
				return count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'") == 1
			}, "no worker has inserted the order")
			kill()
			require.NoError(t, holder.Close(t.Context()))
			require.Equal(t, http.StatusAccepted, send().Code)
			require.Zero(t, count("SELECT count(*) FROM orders"))

			// River's own upkeep makes a job available whose worker has been silent for an hour.
			_, err = pool.Exec(t.Context(), `UPDATE river_job SET state = 'available'`)
			require.NoError(t, err)
			_, err = pool.Exec(t.Context(), `INSERT INTO river_job (args, kind, max_attempts) SELECT args, kind, max_attempts FROM river_job`)
			require.NoError(t, err)
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locker, server := overRedis(t)
			b := newAsynqBroker(t, server.Addr())
			orders := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { require.NoError(t, orders.Close()) })
			send := sender(locker, acceptWithAsynq(b.client, rand.Text))
			accepted := send()
			require.Equal(t, http.StatusAccepted, accepted.Code)
			info, err := b.inspector.ListPendingTasks("default")
			require.NoError(t, err)
			require.Len(t, info, 1)

			kill, placed := startWorker(t, "asynq", server.URL())
			placed()
			kill()
			require.Equal(t, accepted.Body.String(), send().Body.String())
			for range 2 { // asynq itself delivers the first task again when its lease of 30 s is over
				_, err := b.client.Enqueue(asynq.NewTask("order", info[0].Payload))
				require.NoError(t, err)
			}
			worker := finishOrders(locker, func(ctx context.Context, id, customer string) error {
				return orders.HSetNX(ctx, "orders", id, customer).Err()
			})
			if !guarded {
				worker = func(ctx context.Context, _ *asynq.Task) error {
					return orders.HSet(ctx, "orders", rand.Text(), "42").Err()
				}
			}
			queue := asynqServer(server.Addr())
			require.NoError(t, queue.Start(worker))
			t.Cleanup(queue.Shutdown)
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
