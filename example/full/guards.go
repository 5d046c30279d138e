package main

import (
	"fmt"
	"net/http"
	"os"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/policy"
)

// guards stand before the handlers of submissions. The guards that keep
// receipts are outside of the locks: a replay must not meet a cool-down.
type guards struct {
	orderOnce, orderLock func(http.Handler) http.Handler
	payOnce, payLock     func(http.Handler) http.Handler
}

// newGuards makes the guards of the policies file, or without a file the guards
// of the flags.
func newGuards(cfg config, l *lock.Locker) (guards, error) {
	if cfg.policies == "" {
		return guardsOfFlags(cfg, l), nil
	}
	g, err := guardsOfFile(cfg.policies, l)
	if err != nil {
		return guards{}, fmt.Errorf("the policies in %s:\n%w", cfg.policies, err)
	}
	return g, nil
}

func guardsOfFlags(cfg config, l *lock.Locker) guards {
	if cfg.quorum() {
		return guards{
			orderOnce: withoutReceipts,
			orderLock: latch.Lock(l, "user", userID, cfg.perUser()...),
			payOnce:   onlyWithReceipts,
			payLock:   latch.Lock(l, "order", orderID),
		}
	}
	receipts := l
	if cfg.rerun {
		receipts = receipts.With(lock.WithRerunAbandoned())
	}
	return guards{
		// A client's key counts within its user. A payment belongs to the order in its path.
		orderOnce: latch.Idempotent(receipts, userID, keyIfAny, latch.WithName("order-once"), latch.WithFinal(placed)),
		orderLock: latch.Lock(l, "user", userID, cfg.perUser()...),
		payOnce:   latch.Idempotent(receipts, keyfunc.Global, keyfunc.IdempotencyKey, latch.WithName("pay-once"), latch.WithFinal(placed)),
		payLock:   latch.Lock(l, "order", orderID),
	}
}

// withoutReceipts takes the place of a guard that needs receipts, over a quorum. It
// lets through what asks for none.
func withoutReceipts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values("Idempotency-Key")) > 0 {
			refuse(w, errNoReceipts)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// onlyWithReceipts replaces a guard that needs receipts for each request: it refuses them all.
func onlyWithReceipts(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w, errNoReceipts) })
}

var errNoReceipts = &refusal{
	http.StatusNotImplemented,
	"This desk keeps no answers: it runs over several independent -redis, which are for locks. " +
		"Start it with one -redis, which may be a Cluster or behind Sentinel.",
}

// perUser has the options of the lock of a user's orders.
func (c config) perUser() []latch.LockOption {
	if c.cooldown > 0 {
		return []latch.LockOption{latch.WithCooldown(c.cooldown)}
	}
	return nil
}

// guardsOfFile makes the guards that the file describes. policies.json describes
// the guards of guardsOfFlags.
func guardsOfFile(path string, l *lock.Locker) (guards, error) {
	file, err := os.Open(path) //nolint:gosec // the operator's own, from the command line
	if err != nil {
		return guards{}, err
	}
	defer func() { _ = file.Close() }() // it was only read
	named, err := policy.Load(file, l, map[string]keyfunc.Func{
		"user":                     userID,
		"order":                    orderID,
		"idempotency-key":          keyfunc.IdempotencyKey,
		"optional-idempotency-key": keyIfAny,
		"global":                   keyfunc.Global,
	})
	if err != nil {
		return guards{}, err
	}
	g := guards{
		orderOnce: named.Get("order-once"),
		orderLock: named.Get("order-lock"),
		payOnce:   named.Get("pay-once"),
		payLock:   named.Get("pay-lock"),
	}
	return g, named.Check()
}

// placed says which answers are kept: only successes. A refusal may be different
// later or in another process, and refusing again does no harm.
func placed(status int) bool { return status < 400 }

// orderID is the order that a request is about.
var orderID = keyfunc.PathValue("id")

// keyIfAny lets requests without a key run unguarded.
var keyIfAny = keyfunc.Optional(keyfunc.IdempotencyKey)
