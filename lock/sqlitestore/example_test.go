package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// A receipt is committed with its order, and survives a restart.
func Example() {
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()

	for range 2 { // the program, and the program after a restart
		store, err := sqlitestore.Open(context.Background(), filepath.Join(dir, "shop.db"))
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := store.DB().Exec("CREATE TABLE IF NOT EXISTS orders (name TEXT)"); err != nil {
			fmt.Println(err)
		}
		locker := lock.New(store, lock.WithTransaction())

		receipt, replayed, err := locker.Once(context.Background(), "order=7", nil, func(ctx context.Context) ([]byte, error) {
			tx, _ := sqlitestore.Tx(ctx)
			_, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ('tea')")
			return []byte("201"), err
		})
		fmt.Println(string(receipt), replayed, err)

		_ = locker.Close(context.Background())
		store.Close()
	}
	// Output:
	// 201 false <nil>
	// 201 true <nil>
}

// Work that fails is rolled back with its rows, and the next call runs as the first.
func ExampleTx() {
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "shop.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	if _, err := store.DB().Exec("CREATE TABLE orders (name TEXT)"); err != nil {
		fmt.Println(err)
	}
	locker := lock.New(store, lock.WithTransaction())
	defer func() { _ = locker.Close(ctx) }()

	for _, failure := range []error{errors.New("out of tea"), nil} {
		_, _, err := locker.Once(ctx, "order=7", nil, func(ctx context.Context) ([]byte, error) {
			tx, _ := sqlitestore.Tx(ctx)
			_, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ('tea')")
			return []byte("201"), errors.Join(err, failure)
		})
		var orders int
		read := store.DB().QueryRow("SELECT count(*) FROM orders").Scan(&orders)
		fmt.Println(err, orders, read)
	}
	// Output:
	// out of tea 0 <nil>
	// <nil> 1 <nil>
}
