package snippets_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// The code of docs/steps.md. services and shopServices are those of the running test: tests of it are not parallel.
var (
	services      *http.Client
	shopServices  string
	mayStillOrder = func(context.Context) bool { return true }
)

func guardOfSteps(locker *lock.Locker) func(http.Handler) http.Handler {
	once := latch.Idempotent(locker.With(lock.WithRerunAbandoned()), keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey, latch.WithKeySecret(keySecret))
	return once
}

// reply is the answer of a service. A refusal is an answer, too: all attempts have to decide by it.
type reply struct {
	ID      string `json:"id"`
	Refused bool   `json:"refused"`
}

func callStep(ctx context.Context, name, about string) (reply, error) {
	return latch.Step(ctx, name, func(ctx context.Context) (answer reply, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, shopServices+"/"+name, strings.NewReader(about))
		if err != nil {
			return answer, err
		}
		resp, err := services.Do(req)
		if err != nil {
			return answer, err
		}
		defer resp.Body.Close()
		switch resp.StatusCode {
		case http.StatusOK, http.StatusCreated:
			err = json.NewDecoder(resp.Body).Decode(&answer)
		case http.StatusPaymentRequired, http.StatusUnprocessableEntity:
			answer.Refused = true
		default:
			err = errors.New(resp.Status) // no result: the next attempt asks again, with the same key
		}
		return answer, err
	})
}

func buyLamp(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	stock, err := callStep(ctx, "reserve", "a lamp")
	var charge, parcel, back reply
	if err == nil && !stock.Refused {
		charge, err = callStep(ctx, "charge", stock.ID)
	}
	if err == nil && charge.ID != "" {
		parcel, err = callStep(ctx, "courier", charge.ID)
	}
	if err == nil && parcel.Refused {
		back, err = callStep(ctx, "refund", charge.ID) // taken back, by a step
	}
	switch {
	case err != nil:
		http.Error(w, "try again", http.StatusServiceUnavailable) // not kept: the next attempt goes on
	case back.Refused:
		http.Error(w, "not placed, and charged: we will contact you", http.StatusConflict) // kept
	case parcel.ID == "":
		http.Error(w, "not placed, and nothing was charged", http.StatusConflict) // kept
	default:
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintln(w, parcel.ID)
	}
}

type refund struct{ Ticket, Charge string }

type refundTable interface {
	Insert(ctx context.Context, r refund) error
	Open(ctx context.Context) []refund
	Refund(ctx context.Context, r refund) error
	Drop(ctx context.Context, r refund) error
}

// endUnfinished runs once a night.
func endUnfinished(ctx context.Context, locker *lock.Locker, refunds refundTable) error {
	for u, err := range locker.Unfinished(ctx) {
		if err != nil {
			return err
		}
		if time.Since(u.Since) < time.Hour {
			continue // its client may still repeat it
		}
		for _, s := range u.Steps {
			if s.Name == "charge" { // it is done, or may be: the provider knows it by its key
				if err := refunds.Insert(ctx, refund{u.Ticket, s.Key}); err != nil {
					return err
				}
			}
		}
	}
	for _, r := range refunds.Open(ctx) { // also those of the night before
		err := latch.Finish(ctx, locker, r.Ticket, latch.Answer{Status: http.StatusConflict, Body: []byte("not placed, and nothing was charged\n")})
		switch {
		case err == nil: // repeats get this answer from now on
			err = refunds.Refund(ctx, r)
		case errors.Is(err, lock.ErrLost), errors.Is(err, lock.ErrSettled):
			err = refunds.Drop(ctx, r) // it was repeated, and has its own answer
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func hookOfSteps() latch.IdempotentOption {
	asks := latch.WithReplay(func(r *http.Request, _ *latch.Answer) error {
		if !mayStillOrder(r.Context()) {
			return &keyfunc.Error{Status: http.StatusForbidden}
		}
		return nil
	})
	return asks
}

// shopOfServices are the services of a shop. Each runs a key once, and answers it again with its first answer.
type shopOfServices struct {
	mu       sync.Mutex
	answers  map[string]int                // status by call and key
	effects  map[string]int                // by call
	loses    func(call string, n int) bool // the reply to the n-th request
	requests map[string]int
	refuses  string // calls that are refused
}

func (s *shopOfServices) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body)
	call := strings.TrimPrefix(r.URL.Path, "/")
	key := call + " " + r.Header.Get("Idempotency-Key")
	status, known := s.answers[key]
	if !known {
		status = http.StatusOK
		if strings.Contains(s.refuses, call) {
			status = http.StatusUnprocessableEntity
		} else {
			s.effects[call]++
		}
		s.answers[key] = status
	}
	if s.requests[call]++; s.loses != nil && s.loses(call, s.requests[call]) {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"id":"%s-1"}`, call)
}

// do calls f, and no request is served meanwhile.
func (s *shopOfServices) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// openShop starts the services, and returns the guarded handler.
func openShop(t *testing.T, locker *lock.Locker) (*shopOfServices, http.Handler) {
	t.Helper()
	s := &shopOfServices{answers: map[string]int{}, effects: map[string]int{}, requests: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(server.Close)
	services = &http.Client{Transport: client.Transport(server.Client().Transport, client.WithAttempts(1))}
	shopServices = server.URL
	return s, auth.Require(guardOfSteps(locker)(http.HandlerFunc(buyLamp)))
}

func orderOfSteps(h http.Handler) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/orders", http.NoBody)
	r.SetBasicAuth("42", "")
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Each reply of each service is lost once: every service has one effect, and every repeat after the answer gets it.
func TestChainOfThreeCalls(t *testing.T) { //nolint:paralleltest // the services are variables
	s, h := openShop(t, newLocker(t, memstore.New()))
	s.do(func() { s.loses = func(_ string, n int) bool { return n == 1 } })
	for _, status := range []int{503, 503, 503, 201, 201} {
		require.Equal(t, status, orderOfSteps(h).Code)
	}
	s.do(func() {
		require.Equal(t, map[string]int{"reserve": 1, "charge": 1, "courier": 1}, s.effects)
		require.Equal(t, map[string]int{"reserve": 2, "charge": 2, "courier": 2}, s.requests)
	})
}

// Charged, refused by the courier, refunded, and the reply to the refund is lost. Meanwhile the courier would say yes:
// the repeat decides as the first attempt did. Without the kept refusal it answers 201, for an order that is not paid.
func TestTakingItBack(t *testing.T) { //nolint:paralleltest // the services are variables
	s, h := openShop(t, newLocker(t, memstore.New()))
	s.do(func() {
		s.refuses = "courier"
		s.loses = func(call string, n int) bool { return n == 1 && call != "reserve" }
	})
	for _, status := range []int{503, 503, 503} {
		require.Equal(t, status, orderOfSteps(h).Code)
	}
	s.do(func() {
		s.refuses = ""
		clear(s.answers) // the services forget their keys, too
	})
	for range 2 {
		require.Equal(t, http.StatusConflict, orderOfSteps(h).Code)
	}
	s.do(func() {
		require.Equal(t, 1, s.effects["charge"])
		require.Zero(t, s.effects["courier"])
		require.Equal(t, 2, s.requests["refund"])
	})
}

// The refund is refused: the answer does not say that nothing was charged.
func TestRefundThatIsRefused(t *testing.T) { //nolint:paralleltest // the services are variables
	s, h := openShop(t, newLocker(t, memstore.New()))
	s.do(func() { s.refuses = "courier refund" })
	for range 2 {
		w := orderOfSteps(h)
		require.Equal(t, http.StatusConflict, w.Code)
		require.Contains(t, w.Body.String(), "and charged")
	}
}

// refundsOfTest is a table of refunds in memory, with the provider's view.
type refundsOfTest struct {
	open, refunded []refund
}

func (r *refundsOfTest) Insert(_ context.Context, one refund) error {
	r.open = append(r.open, one)
	return nil
}
func (r *refundsOfTest) Open(context.Context) []refund { return slices.Clone(r.open) }
func (r *refundsOfTest) Refund(ctx context.Context, one refund) error {
	r.refunded = append(r.refunded, one)
	return r.Drop(ctx, one)
}

func (r *refundsOfTest) Drop(_ context.Context, one refund) error {
	r.open = slices.DeleteFunc(r.open, func(other refund) bool { return other == one })
	return nil
}

// Charged, and never repeated: the job finds it, answers it and refunds it.
func TestEndUnfinished(t *testing.T) { //nolint:paralleltest // the services are variables
	store := memstore.New()
	locker := newLocker(t, store)
	s, h := openShop(t, locker)
	s.do(func() { s.loses = func(call string, _ int) bool { return call == "courier" } })
	require.Equal(t, http.StatusServiceUnavailable, orderOfSteps(h).Code)
	var refunds refundsOfTest
	require.NoError(t, endUnfinished(t.Context(), locker, &refunds))
	require.Empty(t, refunds.refunded, "it began a moment ago")
	for u, err := range locker.Unfinished(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, "42", u.Label)
		require.NoError(t, refunds.Insert(t.Context(), refund{u.Ticket, u.Steps[1].Key})) // as an hour later
	}
	require.NoError(t, endUnfinished(t.Context(), locker, &refunds))
	require.Len(t, refunds.refunded, 1)
	s.do(func() { require.Contains(t, s.answers, "charge "+refunds.refunded[0].Charge) })
	require.Empty(t, refunds.open)
	w := orderOfSteps(h)
	require.Equal(t, http.StatusConflict, w.Code)
	require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
	for u, err := range locker.Unfinished(t.Context()) {
		t.Error("it is finished", u, err)
	}
}

func TestHookOfSteps(t *testing.T) { //nolint:paralleltest // mayStillOrder is a variable
	defer func() { mayStillOrder = func(context.Context) bool { return true } }()
	h := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey, hookOfSteps())(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	require.Equal(t, http.StatusCreated, orderOfSteps(h).Code)
	require.Equal(t, http.StatusCreated, orderOfSteps(h).Code)
	mayStillOrder = func(context.Context) bool { return false }
	require.Equal(t, http.StatusForbidden, orderOfSteps(h).Code)
}
