package quorum_test

import (
	"context"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/quorum"
)

// Three stores that fail independently. In a service they come from redisstore.Open, for the
// URLs of three masters.
func ExampleNew() {
	stores := []lock.Store{memstore.New(), memstore.New(), memstore.New()}
	store := quorum.New(stores, quorum.WithNodeTimeout(200*time.Millisecond))
	locker := lock.New(store)
	ctx := context.Background()
	err := locker.Do(ctx, lock.Key("user", "42"), func(context.Context) error {
		fmt.Println("placed")
		return nil
	})
	fmt.Println(err, locker.Close(ctx))
	// Output:
	// placed
	// <nil> <nil>
}

// A readiness probe can call Check.
func ExampleStore_Check() {
	store := quorum.New([]lock.Store{memstore.New(), memstore.New(), memstore.New()})
	fmt.Println(store.Check(context.Background()))
	// Output: <nil>
}
