package integrations_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/hibiken/asynq"

	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

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
