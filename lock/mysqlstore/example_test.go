package mysqlstore_test

import (
	"context"
	"fmt"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

// An order and its receipt are committed together.
func Example() { //nolint:testableexamples // needs a server
	ctx := context.Background()
	store, err := mysqlstore.Open(ctx, "shop:secret@tcp(127.0.0.1:3306)/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	locker := lock.New(store, lock.WithTransaction())

	receipt, replayed, err := locker.Once(ctx, "order=7", nil, func(ctx context.Context) ([]byte, error) {
		tx, _ := mysqlstore.Tx(ctx)
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (name) VALUES (?)", "tea")
		return []byte("201"), err
	})
	fmt.Println(string(receipt), replayed, err)
}
