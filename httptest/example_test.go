//nolint:bodyclose // what is recorded has nothing to close
package latchtest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// newOrders is the wiring of the examples. An order takes a while, and a second more if others came meanwhile: on a busy
// machine, the rest of such a storm may come later.
func newOrders(s lock.Store) http.Handler {
	locker := lock.New(s, lock.WithLogger(slog.New(slog.DiscardHandler)))
	onePerUser := latch.Lock(locker, "user", keyfunc.Header("X-User-ID"))
	var under atomic.Int64
	var crowded atomic.Bool
	guarded := onePerUser(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(200 * time.Millisecond)
		if crowded.Load() {
			time.Sleep(time.Second)
		}
		w.WriteHeader(http.StatusCreated)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if under.Add(1) > 1 {
			crowded.Store(true)
		}
		defer under.Add(-1)
		guarded.ServeHTTP(w, r)
	})
}

func TestOrders(t *testing.T) {
	order := func() *http.Request {
		r := httptest.NewRequest("POST", "/orders", strings.NewReader(`{"sku":"A"}`))
		r.Header.Set("X-User-ID", "42")
		return r
	}
	latchtest.Incident(t, newOrders, order)

	orders := newOrders(memstore.New())
	created := 0
	for _, res := range latchtest.Storm(orders, 50, func(int) *http.Request { return order() }) {
		if res.StatusCode == http.StatusCreated {
			created++
		}
	}
	if created != 1 {
		t.Errorf("a double click makes %d orders", created)
	}
}

// dial and mystore belong to the author of a store.
var (
	dial    = func(*testing.T) string { return "localhost:7000" }
	mystore struct{ stores }
)

type stores struct{}

func (stores) New(string) lock.Store { return bare{memstore.New()} }

func TestMyStore(t *testing.T) {
	client := dial(t)
	latchtest.TestStore(t, 50*time.Millisecond, func(*testing.T) lock.Store {
		return mystore.New(client)
	})
}

// The tests in the comment of the package are the tests above.
func TestDocShowsTheExamples(t *testing.T) {
	t.Parallel()
	doc := must.Get(os.ReadFile("doc.go"))(t)
	examples := must.Get(os.ReadFile("example_test.go"))(t)
	shown := regexp.MustCompile(`(?m)(?:^//\tfunc Test.*\n)(?:^//(?:\t.*)?\n)*?(?:^//\t}\n)`).FindAllString(string(doc), -1)
	require.Len(t, shown, 2)
	for _, s := range shown {
		code := regexp.MustCompile(`(?m)^//\t?`).ReplaceAllString(s, "")
		require.Contains(t, string(examples), "\n"+code)
	}
}

func ExampleStorm() {
	onePerUser := latch.Lock(lock.New(memstore.New()), "user", keyfunc.Header("X-User-ID"))
	orders := onePerUser(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Second) // an order takes its time
		w.WriteHeader(http.StatusCreated)
	}))

	statuses := make(map[int]int)
	for _, res := range latchtest.Storm(orders, 20, func(int) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		r.Header.Set("X-User-ID", "42")
		return r
	}) {
		statuses[res.StatusCode]++
	}
	fmt.Println(statuses)
	// Output: map[201:1 409:19]
}

// The reply to a claim is lost. The Locker claims again with the same token,
// and the answer shows that it has the key since the first claim.
func ExampleLoseReply() {
	ctx := context.Background()
	store := latchtest.LoseReply(memstore.New(), latchtest.Claim, 1)
	locker := lock.New(store, lock.WithObserver(func(_ context.Context, e lock.Event) { fmt.Println(e.Kind) }))

	err := locker.Do(ctx, lock.Key("user", "42"), func(context.Context) error {
		fmt.Println("placing the order")
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// recovered
	// placing the order
	// released
	// done: <nil>
}

// Settles are lost for as long as a caller waits, and the answer is no worse
// for it: the Locker goes on in the background.
func ExampleLoseRequest() {
	ctx := context.Background()
	store := latchtest.LoseRequest(memstore.New(), latchtest.Settle, 8)
	locker := lock.New(store, lock.WithLogger(slog.New(slog.DiscardHandler)))
	charge := func(context.Context) ([]byte, error) { return []byte("charged"), nil }

	receipt, replayed, err := locker.Once(ctx, "payment 7", nil, charge)
	fmt.Printf("%s, replayed: %t, %v\n", receipt, replayed, err)
	receipt, replayed, err = locker.Once(ctx, "payment 7", nil, charge)
	fmt.Printf("%s, replayed: %t, %v\n", receipt, replayed, err)
	// Output:
	// charged, replayed: false, <nil>
	// charged, replayed: true, <nil>
}

// The store hangs, and the claim takes effect when its caller no longer waits
// for it. It locks no caller out.
func ExampleStall() {
	ctx := context.Background()
	store := latchtest.Stall(memstore.New(), latchtest.Claim, 1, 100*time.Millisecond)
	locker := lock.New(store, lock.WithLogger(slog.New(slog.DiscardHandler)))
	place := func(context.Context) error { return nil }

	impatient, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	err := locker.Do(impatient, lock.Key("user", "42"), place) // lock: outcome unknown: context deadline exceeded
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	time.Sleep(200 * time.Millisecond)
	fmt.Println(locker.Do(ctx, lock.Key("user", "42"), place))
	// Output:
	// true
	// <nil>
}
