package redisstore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

func ExampleStore_Check() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer client.Close()
	store := redisstore.New(client)

	if err := store.Check(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output: redisstore: dial: tcp 127.0.0.1:1: connect: connection refused: is the server up, and is the address right
}

func ExampleWithoutPluralClaims() {
	client := redis.NewClient(&redis.Options{Addr: "proxy.internal:6379"})
	defer client.Close()
	store := redisstore.New(client, redisstore.WithPrefix("shop:"), redisstore.WithoutPluralClaims())
	locker := lock.New(store)
	defer locker.Close(context.Background())

	_, err := store.ClaimSet(context.Background(), []string{"item=1", "item=2"}, make([]lock.Claim, 2))
	fmt.Println(errors.Is(err, errors.ErrUnsupported)) // the Locker claims one key after the other
	// Output: true
}
