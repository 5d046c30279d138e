package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// orderArgs is an accepted order, as River keeps it.
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
