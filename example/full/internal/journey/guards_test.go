package journey_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// guard is a way into the desk.
type guard struct {
	name string

	// promised is whether a client that sends a request with its key again causes one
	// effect, and gets the first answer. A Lock promises less: that no two run at once. To
	// it, what comes after the first has ended is another order.
	promised bool

	request func(i intent) request
	prepare func(ctx context.Context, d *desk, i *intent) error // nil: there is nothing to prepare

	// effects returns how many there are, and what the answer to the first is.
	effects func(ctx context.Context, d *desk, i intent) (n int, first answer, err error)
}

const (
	onOrders  = "`Idempotent` and `Lock`: `POST /orders`"
	onPayment = "`Idempotent` and `Lock`: `POST /orders/{id}/pay`"
)

// guards are those of the desk's guards.go for requests with a key, and those that its form
// can name.
var guards = []guard{
	{onOrders, true, postOrder, nil, ordersOf},
	{onPayment, true, postPayment, placeFirst, paymentOf},
	{"`Idempotent` and `Lock`: the form", true, postForm("both"), nil, ordersOf},
	{"`Idempotent`: the form", true, postForm("idempotent"), nil, ordersOf},
	{"`Lock`: the form", false, postForm("lock"), nil, ordersOf},
	{"naive lock: the form", false, postForm("naive"), nil, ordersOf},
	{"none: the form", false, postForm("none"), nil, ordersOf},
}

// withoutKey is POST /orders for clients that send no key: only the Lock is left.
var withoutKey = guard{"`Lock`: `POST /orders` without a key", false, postOrder, nil, ordersOf}

func postOrder(i intent) request {
	header := []string{"X-User-ID", i.user, "Content-Type", "application/json"}
	if i.work != "" {
		header = append(header, "X-Work", i.work)
	}
	return request{"/orders", i.key(), `{"sku":"tea","quantity":1}`, header}
}

func postPayment(i intent) request {
	return request{"/orders/" + i.id + "/pay", i.key(), "", []string{"X-User-ID", i.user}}
}

func postForm(guard string) func(i intent) request {
	return func(i intent) request {
		form := url.Values{"guard": {guard}, "user": {i.user}, "once": {i.key()}, "sku": {"tea"}, "quantity": {"1"}}
		if i.work != "" {
			form.Set("work", i.work)
		}
		return request{"/try", i.key(), form.Encode(), []string{"Content-Type", "application/x-www-form-urlencoded"}}
	}
}

func ordersOf(ctx context.Context, d *desk, i intent) (n int, first answer, err error) {
	all, err := d.orders(ctx, i.user)
	if err != nil || len(all) == 0 {
		return 0, answer{}, err
	}
	body, err := json.Marshal(all[0])
	return len(all), answer{http.StatusCreated, "/orders/" + all[0].ID, string(body) + "\n", false}, err
}

// placeFirst places the order that is paid then.
func placeFirst(ctx context.Context, d *desk, i *intent) error {
	r := postOrder(*i)
	r.key = "before-" + r.key
	got, err := d.send(ctx, r)
	if err != nil {
		return err
	}
	d.toPay.Add(1)
	var placed order
	err = json.Unmarshal([]byte(got.body), &placed)
	if i.id = placed.ID; i.id == "" {
		return fmt.Errorf("no order to pay: %v: %w", got, err)
	}
	return nil
}

// paymentOf returns whether the order is paid. It cannot be paid twice; how often it was
// tried, the desk's counter says, which the test compares in the end.
func paymentOf(ctx context.Context, d *desk, i intent) (n int, first answer, err error) {
	var now struct{ Status string }
	if err := d.get(ctx, "/orders/"+i.id, &now); err != nil {
		return 0, answer{}, err
	}
	if now.Status == "paid" {
		n = 1
	}
	return n, answer{http.StatusOK, "", fmt.Sprintf("{\"id\":%q,\"status\":\"paid\"}\n", i.id), false}, nil
}
