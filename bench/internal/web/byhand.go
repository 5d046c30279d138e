package web

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/httplatch/httplatch/bench/internal/peer"
)

// What a lock of a user costs at least, written into the handler's way as many
// do: no library, two commands, and no recovery from anything.

func openByHandGoRedis(ctx context.Context, t peer.Target, work func()) (*Service, error) {
	bare, ok := peer.Named(peer.Bare)
	if !ok {
		return nil, errors.New("web: there is no " + peer.Bare)
	}
	return openByHand(ctx, t, work, bare.Open)
}

func openByHandRueidis(ctx context.Context, t peer.Target, work func()) (*Service, error) {
	return openByHand(ctx, t, work, openRueidis)
}

func openByHand(ctx context.Context, t peer.Target, work func(), open func(context.Context, peer.Target) (peer.Locker, error)) (*Service, error) {
	locks, err := open(ctx, t)
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

// viaRueidis locks over redis/rueidis, a client that has all callers' commands
// share connections.
type viaRueidis struct {
	client rueidis.Client
	tokens atomic.Int64
}

func openRueidis(_ context.Context, t peer.Target) (peer.Locker, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{t.Addr}, DisableCache: true})
	if err != nil {
		return nil, err
	}
	return &viaRueidis{client: client}, nil
}

func (v *viaRueidis) Acquire(ctx context.Context, key string) (peer.Held, error) {
	token := "token-of-a-usual-length-" + strconv.FormatInt(v.tokens.Add(1), 10)
	err := v.client.Do(ctx, v.client.B().Set().Key(key).Value(token).Nx().PxMilliseconds(peer.Lease.Milliseconds()).Build()).Error()
	switch {
	case rueidis.IsRedisNil(err):
		return nil, peer.ErrRefused
	case err != nil:
		return nil, err
	}
	return heldByRueidis{v.client, key, token}, nil
}

func (v *viaRueidis) Close(context.Context) error {
	v.client.Close()
	return nil
}

type heldByRueidis struct {
	client     rueidis.Client
	key, token string
}

var compareAndDelete = rueidis.NewLuaScript(peer.CompareAndDelete)

func (h heldByRueidis) Release(ctx context.Context) error {
	return compareAndDelete.Exec(ctx, h.client, []string{h.key}, []string{h.token}).Error()
}
