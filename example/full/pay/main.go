// Command pay sells lamps: an order reserves one, charges for it, and books a courier, by three calls to other
// services. It goes on where it stopped if a reply is lost, or its process is killed:
//
//	go run ./example/full/pay -services http://localhost:9000
//	curl -i -X POST -H 'X-User-ID: 42' -H 'Idempotency-Key: k' localhost:8080/orders
//
// The services answer POST /reserve, /charge, /courier, /refund and /release: 200 with an ID, or 422 if they refuse.
// They have to honour the Idempotency-Key that each call has. The page docs/steps.md explains shop.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatal("pay: ", err)
	}
}

func run(ctx context.Context) error {
	addr := flag.String("addr", "localhost:8080", "`address` to listen on; port 0 takes a free one")
	services := flag.String("services", "http://localhost:9000", "`URL` of the services")
	file := flag.String("file", "pay.db", "`file` of SQLite for the answers and the results of steps; its directory exists")
	lease := flag.Duration("lease", 30*time.Second, "how long an order waits for a process that was killed")
	flag.Parse()
	store, err := sqlitestore.Open(ctx, *file)
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	defer store.Close()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
	if err != nil {
		return err
	}
	fmt.Println("listening on http://" + listener.Addr().String())
	secret := os.Getenv("KEY_SECRET") // at least 16 random bytes, the same in each process of this shop
	server := &http.Server{Handler: newShop(lock.New(store, lock.WithLease(*lease)), *services, []byte(secret)), ReadHeaderTimeout: 5 * time.Second}
	return server.Serve(listener)
}
