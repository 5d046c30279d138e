// Command example is an order desk that takes each submission once, in as few lines as show how:
//
//	go run ./example
//	go run ./example -addr :8081 -redis redis://localhost:6379
//
// Open http://localhost:8080, or submit twice at once:
//
//	curl -i -H 'X-User-ID: 42' -H 'X-Work: 2s' -d '{"sku":"tea","quantity":1}' localhost:8080/orders
//
// Each flag is also read from the environment: LATCH_ADDR for -addr. The library is at work in
// desk.go; ./example/full has the other stores, jobs, metrics and more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// maxWork is how long an order may take, and how long a shutdown waits for one.
const maxWork = 30 * time.Second

type config struct {
	addr, redis         string
	work, lease, budget time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	cfg, err := parse(args, getenv, stderr)
	if err != nil {
		return err
	}
	store, closeStore, err := open(ctx, cfg.redis)
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, cfg, store, stdout), closeStore())
}

// parse reads the flags. Those that args leaves out are read from the environment.
func parse(args []string, getenv func(string) string, stderr io.Writer) (cfg config, err error) {
	flags := flag.NewFlagSet("example", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.addr, "addr", ":8080", "`address` to listen on; port 0 takes a free one")
	flags.StringVar(&cfg.redis, "redis", "", "`URL` of a Redis that other processes share; without one, the store is this process's own")
	flags.DurationVar(&cfg.work, "work", 50*time.Millisecond, "how long an order or a payment takes, up to 30s")
	flags.DurationVar(&cfg.lease, "lease", 30*time.Second, "how long a key stays taken when its process dies")
	flags.DurationVar(&cfg.budget, "budget", 500*time.Millisecond, "how long to wait for the store")
	flags.VisitAll(func(f *flag.Flag) {
		if value := getenv("LATCH_" + strings.ToUpper(f.Name)); value != "" {
			if e := flags.Set(f.Name, value); e != nil {
				err = fmt.Errorf("LATCH_%s: %w", strings.ToUpper(f.Name), e)
			}
		}
	})
	if err = errors.Join(err, flags.Parse(args)); err != nil {
		return cfg, err
	}
	switch {
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q; has ./example/full what you look for?", flags.Arg(0))
	case cfg.work < 0 || cfg.work > maxWork:
		return cfg, fmt.Errorf("-work %v: use 0 to %v", cfg.work, maxWork)
	case cfg.budget <= 0 || cfg.lease < 2*cfg.budget || cfg.lease > 15*time.Minute:
		return cfg, fmt.Errorf("-lease %v -budget %v: the lease is at least twice the budget, and at most 15m", cfg.lease, cfg.budget)
	}
	return cfg, nil
}

// open opens the Redis at url, or the embedded store without one.
func open(ctx context.Context, url string) (store lock.Store, closeStore func() error, err error) {
	if url == "" {
		return memstore.New(), func() error { return nil }, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	shared, err := redisstore.Open(ctx, url, redisstore.WithPrefix("desk:"))
	if err != nil {
		return nil, nil, fmt.Errorf("opening the store: %w", err)
	}
	return shared, shared.Close, nil
}

func serve(ctx context.Context, cfg config, store lock.Store, stdout io.Writer) error {
	locker := lock.New(store, lock.WithLease(cfg.lease), lock.WithBudget(cfg.budget))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.addr)
	if err != nil {
		return err
	}
	at := strings.Replace(listener.Addr().String(), "[::]", "localhost", 1)
	if _, err = fmt.Fprintf(stdout, "listening on http://%[1]s\n  console  http://%[1]s/console\n"+
		"  try      curl -i %[1]s/orders -H 'X-User-ID: 42' -d '{\"sku\":\"tea\",\"quantity\":1}'\n", at); err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{Handler: newDesk(cfg, locker), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err = <-ended:
		return errors.Join(err, locker.Close(context.WithoutCancel(ctx)))
	case <-ctx.Done():
	}

	// The Locker is closed first, while the listener is open: it answers new orders with 503, waits
	// for the running ones, and releases their keys. Then the server sends the last answers.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWork+5*time.Second)
	defer cancel()
	return errors.Join(locker.Close(ctx), server.Shutdown(ctx))
}
