package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var byUser = keyfunc.Header("X-User-ID")

type guard func(l *lock.Locker) func(http.Handler) http.Handler

func lockGuard(l *lock.Locker) func(http.Handler) http.Handler {
	return latch.Lock(l, "user", byUser)
}

func onceGuard(l *lock.Locker) func(http.Handler) http.Handler {
	return latch.Idempotent(l.With(lock.WithWait(0)), byUser, keyfunc.IdempotencyKey) // as the other contenders, but fiber's
}

func openBare(ctx context.Context, _ peer.Target, work func()) (*Service, error) {
	return serve(ctx, handler(work), nothing)
}

// inMemory guards with the embedded store. Its limits are raised, for it keeps
// the answers of a run.
func inMemory(g guard) func(context.Context, peer.Target, func()) (*Service, error) {
	return func(ctx context.Context, _ peer.Target, work func()) (*Service, error) {
		l := peer.NewLocker(peer.NewMemory(100_000_000))
		return serve(ctx, g(l)(handler(work)), l.Close)
	}
}

// onRedis guards over the same client as the lock libraries get.
func onRedis(g guard) func(context.Context, peer.Target, func()) (*Service, error) {
	return func(ctx context.Context, t peer.Target, work func()) (*Service, error) {
		client := peer.NewClient(t)
		store := redisstore.New(client)
		l := peer.NewLocker(store)
		return serve(ctx, g(l)(handler(work)), func(ctx context.Context) error {
			_ = l.Close(ctx) // see package peer
			return errors.Join(store.Close(), client.Close())
		})
	}
}

func nothing(context.Context) error { return nil }

// serve listens on a free port. after ends what h needs.
func serve(ctx context.Context, h http.Handler, after func(context.Context) error) (*Service, error) {
	mux := http.NewServeMux()
	mux.Handle("POST /orders", h)
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	return &Service{
		Addr: ln.Addr().String(),
		close: func(ctx context.Context) error {
			err := errors.Join(srv.Shutdown(ctx), after(ctx))
			if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
				err = errors.Join(err, end)
			}
			return err
		},
	}, nil
}
