package peer

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// BareRueidis is [Bare] over redis/rueidis, a client that has all callers' commands share
// connections.
const BareRueidis = "SET NX + EVALSHA, rueidis"

var rueidisCompareAndDelete = rueidis.NewLuaScript(CompareAndDelete)

// rueidisOption is a client of t without a cache: a server in a test may not track keys.
func rueidisOption(t Target) rueidis.ClientOption {
	option := rueidis.ClientOption{InitAddress: []string{t.Addr}, DisableCache: true}
	if t.Dial != nil {
		option.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return t.Dial(ctx, "tcp", addr)
		}
	}
	return option
}

type bareRueidis struct {
	client rueidis.Client
	lease  time.Duration
	tokens atomic.Int64
}

func openBareRueidis(_ context.Context, t Target) (Locker, error) {
	client, err := rueidis.NewClient(rueidisOption(t))
	if err != nil {
		return nil, err
	}
	return &bareRueidis{client: client, lease: t.lease()}, nil
}

func (b *bareRueidis) Acquire(ctx context.Context, key string) (Held, error) {
	token := "token-of-a-usual-length-" + strconv.FormatInt(b.tokens.Add(1), 10)
	err := b.client.Do(ctx, b.client.B().Set().Key(key).Value(token).Nx().PxMilliseconds(b.lease.Milliseconds()).Build()).Error()
	switch {
	case rueidis.IsRedisNil(err):
		return nil, ErrRefused
	case err != nil:
		return nil, err
	}
	return bareRueidisHeld{b.client, key, token}, nil
}

func (b *bareRueidis) Close(context.Context) error {
	b.client.Close()
	return nil
}

type bareRueidisHeld struct {
	client     rueidis.Client
	key, token string
}

func (h bareRueidisHeld) Release(ctx context.Context) error {
	n, err := rueidisCompareAndDelete.Exec(ctx, h.client, []string{h.key}, []string{h.token}).AsInt64()
	return released(n == 1, err)
}
