package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// losing is a network that loses a number of answers at first.
type losing struct{ answers int }

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && l.answers > 0 {
		l.answers--
		resp.Body.Close()
		return nil, errors.New("connection reset by peer")
	}
	return resp, err
}

// exampleShop takes orders, each key once.
func exampleShop() *httptest.Server {
	var mu sync.Mutex
	orders := 0
	once := latch.Idempotent(lock.New(memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey)
	return httptest.NewServer(once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		orders++
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "order %d", orders)
	})))
}

func ExampleTransport() {
	shop := exampleShop()
	defer shop.Close()

	network := &losing{answers: 1}
	c := &http.Client{Transport: client.Transport(network), Timeout: 30 * time.Second}
	resp, err := c.Post(shop.URL, "application/json", strings.NewReader(`{"sku":"tea"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(answer), err)
	fmt.Println("attempts:", client.Attempts(resp))
	// Output:
	// 201 order 1 <nil>
	// attempts: 2
}

// A worker sends each job of its queue with the key that the job was stored
// with. If it is killed after the order was placed and before the job was
// deleted, the next worker gets the answer of the first.
func ExampleWithKey_queue() {
	shop := exampleShop()
	defer shop.Close()
	type job struct{ Key, Body string }
	queue := []job{{Key: "draft-7", Body: `{"sku":"tea"}`}} // stored with the intent, before anything is sent
	work := func(killed bool) error {
		ctx := client.WithKey(context.Background(), queue[0].Key)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, shop.URL, strings.NewReader(queue[0].Body))
		if err != nil {
			return err
		}
		c := &http.Client{Transport: client.Transport(nil), Timeout: 30 * time.Second}
		resp, err := c.Do(req)
		if err != nil {
			return err // the job stays in the queue
		}
		defer resp.Body.Close()
		if p, ok := client.ParseProblem(resp); ok {
			return p // p.Kind says whether a person has to look at it, as with outcome-unknown
		}
		answer, err := io.ReadAll(resp.Body)
		fmt.Println(string(answer))
		if err == nil && !killed {
			queue = queue[1:]
		}
		return err
	}
	fmt.Println(work(true))
	fmt.Println(work(false))
	// Output:
	// order 1
	// <nil>
	// order 1
	// <nil>
}

// Stripe takes the same header, keeps the first answer for a key, including
// errors, and says in Stripe-Should-Retry whether to repeat a request.
func ExampleTransport_stripe() {
	attempts := 0
	stripe := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch attempts++; attempts {
		case 1: // another request with the key is under way
			w.Header().Set("Stripe-Should-Retry", "true")
			w.WriteHeader(http.StatusConflict)
		case 2:
			w.WriteHeader(http.StatusOK)
			_, _ = fmt.Fprint(w, `{"id":"ch_1"}`)
		default: // a failure that would only be replayed
			w.Header().Set("Stripe-Should-Retry", "false")
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer stripe.Close()

	// Of a client from stripe-go, turn its own retries off (MaxNetworkRetries: 0).
	c := &http.Client{Transport: client.Transport(nil)}
	for _, charge := range []string{"charge-7", "charge-8"} {
		ctx := client.WithKey(context.Background(), charge)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, stripe.URL+"/v1/charges", strings.NewReader("amount=700"))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := c.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(resp.Request.Header.Get("Idempotency-Key"), resp.StatusCode, "attempts:", client.Attempts(resp))
		resp.Body.Close()
	}
	// Output:
	// charge-7 200 attempts: 2
	// charge-8 500 attempts: 1
}

func ExampleWithHook() {
	busy := 2
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if busy--; busy >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	log := func(a client.Attempt) {
		key := a.Request.Header.Get("Idempotency-Key")
		fmt.Printf("%s: attempt %d, status %d, again: %v, %s\n", key, a.Number, a.Status, a.Again, a.Reason)
	}
	c := &http.Client{Transport: client.Transport(nil, client.WithAttempts(2), client.WithHook(log))}
	req, _ := http.NewRequestWithContext(client.WithKey(context.Background(), "draft-7"), http.MethodPost, server.URL, nil)
	resp, err := c.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	// Output:
	// draft-7: attempt 1, status 503, again: true, the server asks for it by its status
	// draft-7: attempt 2, status 503, again: false, the server asks for it by its status; no attempts are left
}

func ExampleParseProblem() {
	refusal := &latch.Problem{
		Status: http.StatusConflict,
		Type:   "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#outcome-unknown",
		Title:  "The same request was sent before and did not finish, and it is not known whether it had an effect.",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { refusal.ServeHTTP(w, r) }))
	defer server.Close()

	c := &http.Client{Transport: client.Transport(nil)}
	resp, err := c.Post(server.URL, "application/json", strings.NewReader(`{"sku":"tea"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	if p, ok := client.ParseProblem(resp); ok {
		switch p.Kind() {
		case "outcome-unknown":
			fmt.Println("check whether the order exists, before ordering with a new key")
		case "held", "cooling-down":
			fmt.Println("another of your orders is running")
		default:
			fmt.Println(p)
		}
	}
	// Output:
	// check whether the order exists, before ordering with a new key
}

// The provider charges, its answer is lost, and the handler fails. The customer repeats, the
// handler runs again, and its call has the same key: one charge.
func ExampleStep() {
	charged := map[string]bool{}
	provider := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		charged[r.Header.Get("Idempotency-Key")] = true
	}))
	defer provider.Close()
	network := &losing{answers: 1}
	c := &http.Client{Transport: client.Transport(network, client.WithAttempts(1))}

	locker := lock.New(memstore.New())
	secret := []byte("32 random bytes of your own, say")
	once := latch.Idempotent(locker, keyfunc.Global, keyfunc.IdempotencyKey, latch.WithKeySecret(secret))
	shop := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(client.Step(r.Context(), "charge"), http.MethodPost, provider.URL, strings.NewReader("{}"))
		if err == nil {
			var resp *http.Response
			if resp, err = c.Do(req); err == nil {
				resp.Body.Close()
			}
		}
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	for range 2 {
		order := httptest.NewRequest(http.MethodPost, "/orders", nil)
		order.Header.Set("Idempotency-Key", "8e03978e")
		w := httptest.NewRecorder()
		shop.ServeHTTP(w, order)
		fmt.Println(w.Code)
	}
	fmt.Println("charges:", len(charged))
	// Output:
	// 502
	// 200
	// charges: 1
}
