package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// run serves until ctx ends. It then lets running orders finish, and closes all that it has opened.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	cfg, err := parseConfig(args, getenv, stderr)
	if err != nil {
		return err
	}
	return cfg.run(ctx, stdout, stderr)
}

func (c config) run(ctx context.Context, stdout, stderr io.Writer) error {
	b, err := c.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, c, b, stdout, stderr), b.close())
}

func serve(ctx context.Context, cfg config, b backend, stdout, stderr io.Writer) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.addr)
	if err != nil {
		return err
	}
	at := reachable(listener.Addr())
	logger := newLogger(stderr, "http://"+at+"/console")
	d, err := newDesk(cfg, b, logger)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{
		Handler:           d.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       cfg.readTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	if _, err := fmt.Fprintf(stdout, greeting, at, cfg.where()); err != nil {
		return errors.Join(err, listener.Close(), d.close(ctx))
	}

	ctx, stop := context.WithCancel(ctx)
	var worker sync.WaitGroup
	defer worker.Wait()
	defer stop()
	if cfg.worker {
		worker.Go(func() { d.workOnJobs(ctx) })
	}

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(tellingListener{listener}) }()
	select {
	case err = <-failed:
		return errors.Join(err, d.close(ctx))
	case <-ctx.Done():
	}
	logger.Info("shutting down")
	err = shutDown(context.WithoutCancel(ctx), cfg.drain, d, server)
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served) // it had failed in addition to the signal
	}
	return err
}

// greeting returns the first line of the desk: its address and its store.
const greeting = `listening on http://%[1]s
  store    %[2]s
  page     http://%[1]s/
  console  http://%[1]s/console
  try      curl -i %[1]s/orders -H 'X-User-ID: 42' -d '{"sku":"tea","quantity":1}'
`

// shutDown ends everything in an order that refuses no client without an answer.
//
// The Locker goes first, while the listener is still open: it refuses new
// orders, which are answered with 503, and waits for those that run. The server
// would close its listener at once, and new orders would meet a refused
// connection for as long as the last one runs. When the Locker is done all
// leases have ended, but the answers to the last requests may not be sent yet;
// for those the server waits.
func shutDown(ctx context.Context, drain time.Duration, d *desk, server *http.Server) error {
	d.draining.Store(true)
	patience, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	err := d.close(patience)

	ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		// The connections that are still open have no lease: their clients read or
		// send very slowly. That is no failure of the desk.
		return errors.Join(err, server.Close())
	}
	return err
}

// reachable is addr with a host that can be put into a browser.
func reachable(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("localhost:%d", tcp.Port)
	}
	return addr.String()
}
