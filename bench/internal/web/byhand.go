package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/httplatch/httplatch/bench/internal/peer"
)

// What a lock of a user costs at least, written into the handler's way as many
// do: no library, two commands, and no recovery from anything.

func openByHandGoRedis(ctx context.Context, t peer.Target, work func()) (*Service, error) {
	return openByHand(ctx, t, work, peer.Bare)
}

func openByHandRueidis(ctx context.Context, t peer.Target, work func()) (*Service, error) {
	return openByHand(ctx, t, work, peer.BareRueidis)
}

func openByHand(ctx context.Context, t peer.Target, work func(), name string) (*Service, error) {
	bare, ok := peer.Named(name)
	if !ok {
		return nil, errors.New("web: there is no " + name)
	}
	locks, err := bare.Open(ctx, t)
	if err != nil {
		return nil, err
	}
	next := handler(work)
	return serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	}), locks.Close)
}
