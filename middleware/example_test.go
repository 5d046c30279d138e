package middleware_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func submit(h http.Handler, user string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	r.Header.Set("X-User-ID", user)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Two carts that share an item: the second is refused while the first is bought.
func ExampleLockAll() {
	locker := lock.New(memstore.New())
	perItem := latch.LockAll(locker, "item", keyfunc.Each("/items/*/sku"))
	buy := func(h http.Handler, cart string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/carts", strings.NewReader(cart)))
		return w.Code
	}
	var carts http.Handler
	carts = perItem(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if set, _ := lock.SetFromContext(r.Context()); len(set.Keys()) == 2 {
			fmt.Println(set.Keys())
			fmt.Println(buy(carts, `{"items": [{"sku": "cup"}]}`), buy(carts, `{"items": [{"sku": "pot"}]}`))
		}
		w.WriteHeader(http.StatusCreated)
	}))
	fmt.Println(buy(carts, `{"items": [{"sku": "tea"}, {"sku": "cup"}]}`))
	// Output:
	// [item=cup item=tea]
	// 409 201
	// 201
}

// A user may run two exports at a time.
func ExampleWithPermits() {
	locker := lock.New(memstore.New())
	twoPerUser := latch.Lock(locker, "export", keyfunc.Header("X-User-ID"), latch.WithPermits(2))

	running := 0
	var exports http.Handler
	exports = twoPerUser(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if running++; running <= 2 {
			fmt.Println(submit(exports, "42").Code)
		}
	}))
	submit(exports, "42")
	fmt.Println(running, "ran")
	// Output:
	// 409
	// 200
	// 2 ran
}

func ExampleLock() {
	locker := lock.New(memstore.New())
	onePerUser := latch.Lock(locker, "user", keyfunc.Header("X-User-ID"))

	var orders http.Handler
	orders = onePerUser(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-User-ID") == "42" {
			// While the first order of user 42 is placed:
			duplicate, other := submit(orders, "42"), submit(orders, "43")
			fmt.Println("same user: ", duplicate.Code, "Retry-After:", duplicate.Header().Get("Retry-After"))
			fmt.Println("other user:", other.Code)
		}
		w.WriteHeader(http.StatusCreated)
	}))
	fmt.Println("first:     ", submit(orders, "42").Code)
	// Output:
	// same user:  409 Retry-After: 1
	// other user: 201
	// first:      201
}

// A worker that uses the same name and value excludes the route, and is
// excluded by it.
func ExampleLock_worker() {
	locker := lock.New(memstore.New())
	orders := latch.Lock(locker, "user", keyfunc.Header("X-User-ID"))(http.HandlerFunc(created))

	err := locker.Do(context.Background(), lock.Key("user", "42"), func(context.Context) error {
		fmt.Println("while the worker runs:", submit(orders, "42").Code)
		return nil
	})
	fmt.Println("afterwards:", submit(orders, "42").Code, err)
	// Output:
	// while the worker runs: 409
	// afterwards: 201 <nil>
}

func ExampleWithCooldown() {
	locker := lock.New(memstore.New())
	guard := latch.Lock(locker, "user", keyfunc.Header("X-User-ID"), latch.WithCooldown(5*time.Minute))
	orders := guard(http.HandlerFunc(created))

	fmt.Println(submit(orders, "42").Code)
	again := submit(orders, "42")
	seconds, err := strconv.Atoi(again.Header().Get("Retry-After"))
	fmt.Println(again.Code, "in minutes:", (seconds+59)/60, err)
	// Output:
	// 201
	// 429 in minutes: 5 <nil>
}

// Clients that repeat a 429 by themselves would order once more.
func ExampleWithCooldownStatus() {
	locker := lock.New(memstore.New())
	guard := latch.Lock(locker, "user", keyfunc.Header("X-User-ID"),
		latch.WithCooldown(5*time.Minute), latch.WithCooldownStatus(http.StatusConflict))
	orders := guard(http.HandlerFunc(created))

	fmt.Println(submit(orders, "42").Code)
	again := submit(orders, "42")
	fmt.Printf("%d, Retry-After: %q\n", again.Code, again.Header().Get("Retry-After"))
	// Output:
	// 201
	// 409, Retry-After: ""
}

// A client that sends its body slowly does not hold the lock meanwhile, and a
// client that sends too much never holds it.
func ExampleWithBodyFirst() {
	locker := lock.New(memstore.New())
	guard := latch.Lock(locker, "order", keyfunc.Query("id"), latch.WithBodyFirst(64<<10))
	pay := guard(http.HandlerFunc(created))

	r := httptest.NewRequest(http.MethodPost, "/pay?id=7", strings.NewReader(strings.Repeat("x", 64<<10+1)))
	w := httptest.NewRecorder()
	pay.ServeHTTP(w, r)
	fmt.Println(w.Code)
	// Output:
	// 413
}

// One value has the options that all routes of an application share.
func ExampleWith() {
	locker := lock.New(memstore.New())
	defaults := latch.With(
		latch.WithFailOpen(),
		latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
			if p.Status == http.StatusConflict {
				http.Error(w, "one moment, please", p.Status)
				return
			}
			p.ServeHTTP(w, r)
		}),
	)
	guard := latch.Lock(locker, "user", keyfunc.Header("X-User-ID"), defaults)

	var orders http.Handler
	orders = guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		fmt.Print(submit(orders, "42").Body)
	}))
	submit(orders, "42")
	// Output:
	// one moment, please
}

// All guards of an API refuse in the format of its errors.
func ExampleWithErrorHandler() {
	refuse := func(w http.ResponseWriter, _ *http.Request, p *latch.Problem) {
		code := "SERVER_ERROR"
		switch p.Kind() {
		case latch.ProblemHeld:
			code = "DUPLICATE"
		case latch.ProblemKeyMissing:
			code = "NO_USER"
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(p.Status)
		_, _ = fmt.Fprintf(w, `{"error":%q}`, code)
	}
	locker := lock.New(memstore.New())
	guard := latch.Lock(locker, "user", keyfunc.Header("X-User-ID"), latch.WithErrorHandler(refuse))
	orders := guard(http.HandlerFunc(created))

	err := locker.Do(context.Background(), lock.Key("user", "42"), func(context.Context) error { // another request of the user
		for _, user := range []string{"42", ""} {
			answer := submit(orders, user)
			fmt.Println(answer.Code, answer.Body)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// 409 {"error":"DUPLICATE"}
	// 400 {"error":"NO_USER"}
	// <nil>
}

func ExampleIdempotent() {
	locker := lock.New(memstore.New())
	userID := func(context.Context) string { return "42" } // the value that your authentication put there
	once := latch.Idempotent(locker, keyfunc.Context(userID), keyfunc.IdempotencyKey)

	orders := 0
	h := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders++
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "order %d", orders)
	}))
	send := func(key, body string) {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusCreated {
			fmt.Println(w.Code)
			return
		}
		fmt.Println(w.Code, w.Body, "replayed:", w.Header().Get("Idempotent-Replayed") == "true")
	}
	send("8e03978e", `{"sku":"tea"}`)
	send("8e03978e", `{"sku":"tea"}`)
	send("8e03978e", `{"sku":"coffee"}`)
	send("40d543e8", `{"sku":"coffee"}`)
	// Output:
	// 201 order 1 replayed: false
	// 201 order 1 replayed: true
	// 422
	// 201 order 2 replayed: false
}

// An order page needs no key from its form: equal requests within three seconds
// are one order.
func ExampleDedupe() {
	locker := lock.New(memstore.New())
	once := latch.Dedupe(locker, keyfunc.Header("X-User-ID"), 3*time.Second)

	orders := 0
	h := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders++
		_, _ = fmt.Fprintf(w, "order %d", orders)
	}))
	fmt.Println(submit(h, "42").Body)
	fmt.Println(submit(h, "42").Body)
	fmt.Println(submit(h, "43").Body)
	// Output:
	// order 1
	// order 1
	// order 2
}

// A payment that has been made is not made again because of a later failure.
func ExampleIdempotent_commit() {
	locker := lock.New(memstore.New())
	once := latch.Idempotent(locker, keyfunc.Header("X-User-ID"), keyfunc.Global)

	payments := 0
	h := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payments++
		if err := lock.Commit(r.Context()); err != nil {
			fmt.Println(err)
		}
		http.Error(w, "the receipt printer is on fire", http.StatusInternalServerError)
	}))
	fmt.Println(submit(h, "42").Code)
	fmt.Println(submit(h, "42").Code)
	fmt.Println("payments:", payments)
	// Output:
	// 500
	// 500
	// payments: 1
}

// An order is accepted with 202. When a worker has placed it, repeats get the final answer.
func ExampleLater() {
	locker := lock.New(memstore.New())
	once := latch.Idempotent(locker, keyfunc.Header("X-User-ID"), keyfunc.Global)

	var queue []string
	orders := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ticket, err := latch.Later(r.Context())
		if err == nil {
			err = lock.Commit(r.Context()) // from here on, a second run would enqueue a second job
		}
		if err != nil {
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		queue = append(queue, ticket)
		w.WriteHeader(http.StatusAccepted)
	}))
	fmt.Println("first request:", submit(orders, "42").Code)
	fmt.Println("repeat:", submit(orders, "42").Code)

	// The worker has the ticket, and often runs in another process.
	err := latch.Finish(context.Background(), locker, queue[0], latch.Answer{Status: http.StatusCreated, Body: []byte("order 1")})
	fmt.Println("finished:", err)
	repeat := submit(orders, "42")
	fmt.Println("repeat:", repeat.Code, repeat.Body)
	fmt.Println("jobs:", len(queue))
	// Output:
	// first request: 202
	// repeat: 202
	// finished: <nil>
	// repeat: 201 order 1
	// jobs: 1
}

// A right that was revoked since the first answer.
func ExampleWithReplay() {
	mayOrder := true
	h := latch.Idempotent(lock.New(memstore.New()), keyfunc.Header("X-User-ID"), keyfunc.Global, latch.WithReplay(func(*http.Request, *latch.Answer) error {
		if !mayOrder {
			return &keyfunc.Error{Status: http.StatusForbidden}
		}
		return nil
	}))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	for _, mayOrder = range []bool{true, true, false} {
		fmt.Println(submit(h, "42").Code)
	}
	// Output:
	// 201
	// 201
	// 403
}

// A webhook is known by the ID of its delivery, and by that alone. A delivery
// that failed may come again.
func ExampleWithFinal() {
	locker := lock.New(memstore.New())
	once := latch.Idempotent(locker, keyfunc.Global, keyfunc.Header("X-Delivery"),
		latch.WithFinal(func(status int) bool { return status < 300 }),
		latch.WithFingerprint(keyfunc.Global),
	)

	status := http.StatusBadRequest
	h := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	deliver := func() {
		r := httptest.NewRequest(http.MethodPost, "/hook", nil)
		r.Header.Set("X-Delivery", "1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	deliver()
	status = http.StatusNoContent // the bug is fixed
	deliver()
	status = http.StatusBadRequest
	deliver()
	// Output:
	// 400
	// 204
	// 204
}

func ExampleProblemOf() {
	locker := lock.New(memstore.New())
	redeem := func(w http.ResponseWriter, r *http.Request) {
		err := locker.Do(r.Context(), lock.Key("coupon", r.FormValue("coupon")), func(context.Context) error {
			_, err := fmt.Fprint(w, "redeemed")
			return err
		})
		if p := latch.ProblemOf(err); p != nil {
			p.ServeHTTP(w, r)
		} else if err != nil {
			http.Error(w, "no", http.StatusInternalServerError)
		}
	}

	request := func() *http.Request { return httptest.NewRequest(http.MethodPost, "/redeem?coupon=SPRING", nil) }
	lease, _ := locker.Acquire(context.Background(), lock.Key("coupon", "SPRING")) // another request of the same coupon
	w := httptest.NewRecorder()
	redeem(w, request())
	fmt.Println(w.Code, w.Header().Get("Retry-After"))

	_ = lease.Release(context.Background())
	w = httptest.NewRecorder()
	redeem(w, request())
	fmt.Println(w.Code, w.Body)
	// Output:
	// 409 1
	// 200 redeemed
}

// A gateway whose upstream takes the order and dies.
func ExampleUpstream() {
	var orders atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		orders.Add(1)
		panic(http.ErrAbortHandler) // the connection breaks
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		panic(err)
	}

	locker := lock.New(memstore.New(), lock.WithLogger(slog.New(slog.DiscardHandler)))
	once := latch.Idempotent(locker, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)
	gateway := once(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: latch.Upstream(nil),
		ErrorLog:  log.New(io.Discard, "", 0),
	})
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("tea"))
		r.Header.Set("X-User-ID", "42")
		r.Header.Set("Idempotency-Key", "8e03978e")
		w := httptest.NewRecorder()
		gateway.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	fmt.Println("orders:", orders.Load())
	// Output:
	// 502
	// 409
	// orders: 1
}

// An agent serialises its request again when it repeats it, and gets the first answer; another
// request with its key gets the refusal that the protocol demands.
func ExampleACP() {
	once := latch.Idempotent(lock.New(memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey, latch.ACP())
	sessions := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	for _, body := range []string{`{"items":[{"id":"tea","quantity":1}]}`, `{"items": [{"quantity": 1.0, "id": "tea"}]}`, `{"items":[]}`} {
		r := httptest.NewRequest(http.MethodPost, "/checkout_sessions", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", "8e03978e")
		w := httptest.NewRecorder()
		sessions.ServeHTTP(w, r)
		fmt.Println(w.Header().Get("Idempotency-Key"), w.Code)
		fmt.Print(w.Body)
	}
	// Output:
	// 8e03978e 201
	// 8e03978e 201
	// 8e03978e 422
	// {"type":"invalid_request","code":"idempotency_conflict","message":"Idempotency-Key has already been used with a different request body"}
}
