package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// job is an order that was accepted with 202, until a worker has placed it.
type job struct {
	order
	ticket string // for the final answer
}

// jobs keeps the accepted orders. It is safe for concurrent use.
type jobs interface {
	accept(ctx context.Context, j job) error

	// next returns a job for a worker, and again after redelivery. ok is false if none is due.
	next(ctx context.Context) (j job, ok bool, err error)

	// accepted returns an order that waits for a worker, or errNoOrder.
	accepted(ctx context.Context, id string) (order, error)
	done(ctx context.Context, id string) error
}

const (
	redelivery = time.Second            // after which a job goes to another worker
	lookAgain  = 100 * time.Millisecond // after which a worker without a job asks for one
)

// acceptOrder is POST /orders?later=1. The answer is 202 until a worker has placed the order.
func (d *desk) acceptOrder(w http.ResponseWriter, r *http.Request, o order) {
	ctx := r.Context()
	if err := d.cfg.acceptsOrders(); err != nil {
		refuse(w, err)
		return
	}
	ticket, err := latch.Later(ctx)
	if err != nil {
		refuse(w, &refusal{http.StatusBadRequest, "later=1 needs an Idempotency-Key: without one, no final answer is kept."})
		return
	}
	if !d.cfg.transactions() {
		err = lock.Commit(ctx) // from here on, a second run would make a second job
	}
	o.ID = rand.Text()
	if err == nil {
		err = d.jobs.accept(ctx, job{o, ticket})
	}
	if err != nil {
		refuse(w, d.ordersError(err))
		return
	}
	w.Header().Set("Location", "/orders/"+o.ID)
	answerJSON(w, http.StatusAccepted, record{order: o, Status: "accepted"})
}

// acceptsOrders returns the refusal of later=1 by a desk whose jobs no worker could do.
func (c config) acceptsOrders() error {
	switch {
	case !c.keepsJobs():
		return &refusal{http.StatusNotImplemented, "This desk accepts no orders for later: it has nowhere to keep them. Start it with -postgres, with one -redis, or without a store."}
	case !c.worker && !c.database():
		return &refusal{http.StatusNotImplemented, "This desk has accepted orders in its memory, and does not place them. Start it with -worker, or with -postgres and a worker as another process."}
	default:
		return nil
	}
}

// keepsJobs reports whether accepted orders are kept: in the transaction of the 202, or in the
// memory of the desk.
func (c config) keepsJobs() bool {
	return c.postgres != "" && c.tx || !c.database() && !c.quorum()
}

// workOnJobs places accepted orders until ctx ends.
func (d *desk) workOnJobs(ctx context.Context) {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		found, err := d.workOnJob(ctx)
		if err != nil && ctx.Err() == nil {
			d.logger.Error("an accepted order is not placed yet", "error", err)
		}
		if found && err == nil {
			continue
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// workOnJob works on one job, if there is one.
func (d *desk) workOnJob(ctx context.Context) (found bool, err error) {
	j, found, err := d.jobs.next(ctx)
	if err != nil || !found {
		return false, err
	}
	_, _, err = d.locker.Once(ctx, lock.Key("job", j.ID), nil, func(ctx context.Context) ([]byte, error) {
		return nil, d.placeAccepted(ctx, j)
	})
	if errors.Is(err, lock.ErrHeld) {
		return true, nil // another worker has it, or was killed less than a lease ago
	}
	return true, err
}

// placeAccepted places the order of j and gives the final answer, in one transaction if there is
// one.
func (d *desk) placeAccepted(ctx context.Context, j job) error {
	if err := work(ctx, d.cfg.work); err != nil {
		return err
	}
	placed, err := d.orders.place(ctx, j.order, 0, false)
	if err != nil {
		return err
	}
	d.metrics.orders.Inc()
	body, err := json.Marshal(placed)
	if err != nil {
		return err
	}
	err = latch.Finish(ctx, d.locker, j.ticket, latch.Answer{
		Status: http.StatusCreated,
		Header: http.Header{"Content-Type": {"application/json"}, "Location": {"/orders/" + placed.ID}},
		Body:   append(body, '\n'),
	})
	if err != nil && !errors.Is(err, lock.ErrLost) { // without a record, no client asks for the answer
		return err
	}
	return d.jobs.done(ctx, j.ID)
}
