package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/httplatch/httplatch/bench/internal/peer"
)

// openByHand guards with the least that a lock of a user costs on go-redis,
// written into the handler's way as many do.
func openByHand(ctx context.Context, t peer.Target, work func()) (*Service, error) {
	bare, ok := peer.Named(peer.Bare)
	if !ok {
		return nil, errors.New("web: there is no " + peer.Bare)
	}
	locks, err := bare.Open(ctx, t)
	if err != nil {
		return nil, err
	}
	return serve(ctx, lockByHand(locks, handler(work)), locks.Close)
}

func lockByHand(locks peer.Locker, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held, err := locks.Acquire(r.Context(), "user="+r.Header.Get("X-User-ID"))
		switch {
		case errors.Is(err, peer.ErrRefused):
			w.WriteHeader(http.StatusConflict)
			return
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer func() { _ = held.Release(context.WithoutCancel(r.Context())) }()
		next.ServeHTTP(w, r)
	})
}
