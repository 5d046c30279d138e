package peer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// No goleak: go-zero keeps a client, and what reports its figures, for good.
func TestMain(m *testing.M) { os.Exit(redistest.Main(m).Run()) }

func open(t *testing.T, p peer.Peer) peer.Locker {
	t.Helper()
	l, err := p.Open(t.Context(), peer.Target{Addr: redistest.Shared(t).Addr(), Pool: 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

// excludes is nil if l, and another one of the same kind, exclude as a lock must.
func excludes(ctx context.Context, l, other peer.Locker, key string) error {
	for round := range 3 {
		held, err := l.Acquire(ctx, key)
		if err != nil {
			return fmt.Errorf("round %d: a free key: %w", round, err)
		}
		for who, l := range map[string]peer.Locker{"the same process": l, "another process": other} {
			if _, err := l.Acquire(ctx, key); !errors.Is(err, peer.ErrRefused) {
				return fmt.Errorf("round %d: a held key, asked for by %s: %w, want ErrRefused", round, who, err)
			}
		}
		free, err := other.Acquire(ctx, key+"-other")
		if err != nil {
			return fmt.Errorf("round %d: another key: %w", round, err)
		}
		if err := errors.Join(held.Release(ctx), free.Release(ctx)); err != nil {
			return fmt.Errorf("round %d: release: %w", round, err)
		}
	}
	return storm(ctx, l, key)
}

// storm lets many callers take one key at once: one must get it.
func storm(ctx context.Context, l peer.Locker, key string) error {
	var won atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, 32)
	release := make(chan struct{})
	var asked sync.WaitGroup
	for i := range errs {
		asked.Add(1)
		wg.Go(func() {
			held, err := l.Acquire(ctx, key)
			asked.Done()
			switch {
			case err == nil:
				won.Add(1)
				<-release
				errs[i] = held.Release(ctx)
			case !errors.Is(err, peer.ErrRefused):
				errs[i] = err
			}
		})
	}
	asked.Wait()
	close(release)
	wg.Wait()
	if n := won.Load(); n != 1 {
		errs = append(errs, fmt.Errorf("%d of %d callers got the key, want 1", n, len(errs)))
	}
	return errors.Join(errs...)
}

// A peer that is wired wrongly would be an unfair comparison.
func TestEveryPeerExcludes(t *testing.T) {
	for _, p := range peer.All() {
		t.Run(p.Name, func(t *testing.T) {
			l, other := open(t, p), open(t, p)
			require.NoError(t, excludes(t.Context(), l, other, t.Name()))
			for _, key := range redistest.Shared(t).Keys(t) {
				require.NotContains(t, key, t.Name(), "what was released is gone")
			}
		})
	}
}

// What every key is held for: a peer with a shorter lease would be one that
// renews, or one that loses its keys. Ours renews what is held for longer than a third of a
// first lease, and no cycle is.
func TestEveryPeerTakesTheSameLease(t *testing.T) {
	srv := redistest.Shared(t)
	first := map[string]time.Duration{peer.Ours: 4 * 3 * time.Second, peer.Defaults: 5 * time.Second}
	for _, p := range peer.All() {
		t.Run(p.Name, func(t *testing.T) {
			l := open(t, p)
			held, err := l.Acquire(t.Context(), "lease-of-"+t.Name())
			require.NoError(t, err)
			found := false
			for _, key := range srv.Keys(t) {
				if strings.Contains(key, "lease-of-") {
					left, _ := srv.Do(t, "PTTL", key).(int64)
					require.InDelta(t, cmp.Or(first[p.Name], peer.Lease).Milliseconds(), left, 4_000)
					found = true
				}
			}
			require.True(t, found)
			require.NoError(t, held.Release(t.Context()))
		})
	}
}
