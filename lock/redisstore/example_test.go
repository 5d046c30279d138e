package redisstore_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

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
