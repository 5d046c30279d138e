// Command example is an order desk that takes each submission once:
//
//	go run ./example
//	go run ./example -addr :8081 -redis redis://localhost:6379
//
// Open http://localhost:8080, or submit twice at once:
//
//	curl -i -H 'X-User-ID: 42' -H 'X-Work: 2s' -d '{"sku":"tea","quantity":1}' localhost:8080/orders
//
// Begin to read in desk.go. Each flag is also a variable: LATCH_ADDR for -addr. ./example/full has more of everything.
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

type config struct {
	addr, redis         string
	work, lease, budget time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. Then it lets running orders finish.
func run(ctx context.Context, args []string, getenv func(string) string, stdout io.Writer) error {
	cfg, err := parse(args, getenv)
	if err != nil {
		return err
	}
	var store lock.Store = memstore.New()
	if cfg.redis != "" {
		shared, err := redisstore.Open(ctx, cfg.redis, redisstore.WithPrefix("desk:")) // the prefix names the service
		if err != nil {
			return fmt.Errorf("opening the store: %w", err)
		}
		defer func() { _ = shared.Close() }()
		store = shared
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.addr)
	if err != nil {
		return err
	}
	at := strings.Replace(listener.Addr().String(), "[::]", "localhost", 1)
	_, _ = fmt.Fprintf(stdout, "listening on http://%[1]s\n  page     http://%[1]s/\n  console  http://%[1]s/console\n"+
		"  try      curl -i %[1]s/orders -H 'X-User-ID: 42' -d '{\"sku\":\"tea\",\"quantity\":1}'\n", at)
	d := newDesk(cfg, store)
	server := &http.Server{Handler: d.routes(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
	case <-ctx.Done():
	}

	// The Lockers are closed while the listener is open: they answer new orders with 503, wait for the
	// running ones, and release their keys. Then the server sends the last answers.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWork+5*time.Second)
	defer cancel()
	return errors.Join(err, d.locker.Close(ctx), d.stage.Locker.Close(ctx), server.Shutdown(ctx))
}

// parse reads the flags, and the environment for flags that are not in args.
func parse(args []string, getenv func(string) string) (cfg config, err error) {
	flags := flag.NewFlagSet("example", flag.ContinueOnError)
	flags.StringVar(&cfg.addr, "addr", ":8080", "`address` to listen on; port 0 takes a free one")
	flags.StringVar(&cfg.redis, "redis", "", "`URL` of a Redis that other processes share; without it, the store is in this process")
	flags.DurationVar(&cfg.work, "work", 50*time.Millisecond, "how long an order or a payment takes, up to 30s")
	flags.DurationVar(&cfg.lease, "lease", 30*time.Second, "how long a key stays taken when its process dies")
	flags.DurationVar(&cfg.budget, "budget", 500*time.Millisecond, "how long to wait for the store")
	flags.VisitAll(func(f *flag.Flag) {
		if value := getenv("LATCH_" + strings.ToUpper(f.Name)); value != "" {
			args = append([]string{"-" + f.Name + "=" + value}, args...)
		}
	})
	switch err = flags.Parse(args); {
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case cfg.work < 0 || cfg.work > maxWork || cfg.budget <= 0 || cfg.lease < 2*cfg.budget || cfg.lease > 15*time.Minute:
		err = errors.Join(err, errors.New("-work is at most 30s, and -lease at least twice -budget, and at most 15m"))
	}
	return cfg, err
}
