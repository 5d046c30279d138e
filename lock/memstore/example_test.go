package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func ExampleNew() {
	ctx := context.Background()
	locker := lock.New(memstore.New())
	key := lock.Key("user", "42")

	err := locker.Do(ctx, key, func(ctx context.Context) error {
		fmt.Println("placing the order")
		again := locker.Do(ctx, key, func(context.Context) error { return nil })
		fmt.Println("a second click:", errors.Is(again, lock.ErrHeld))
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// placing the order
	// a second click: true
	// done: <nil>
}

func ExampleWithLimits() {
	ctx := context.Background()
	locker := lock.New(memstore.New(memstore.WithLimits(1, 1<<20)))

	err := locker.Do(ctx, lock.Key("user", "42"), func(ctx context.Context) error {
		return locker.Do(ctx, lock.Key("user", "43"), func(context.Context) error { return nil })
	})
	fmt.Println(errors.Is(err, lock.ErrFull), errors.Is(err, lock.ErrUnavailable))
	// Output: true true
}

// Where all callers are one scope (keyfunc.Global), that has the whole store.
func ExampleWithScopeShare() {
	ctx := context.Background()
	claim := lock.Claim{Token: "t", Scope: "*", Lease: time.Minute}
	for _, share := range []float64{0.25, 1} {
		store := memstore.New(memstore.WithLimits(4, 1<<20), memstore.WithScopeShare(share))
		_, first := store.Claim(ctx, "a", claim)
		_, second := store.Claim(ctx, "b", claim)
		fmt.Println(share, first == nil, second == nil)
	}
	// Output:
	// 0.25 true false
	// 1 true true
}
