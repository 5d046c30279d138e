package suite

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/internal/respproxy"
)

// Stalls is the part in which one reply in a thousand comes 100 ms late: what
// that does to the others. The cycles that it is done to are not counted, in
// neither case, and both cases run through the same proxy.
const Stalls = "stalls"

// Cases of Stalls.
const (
	Undisturbed = "256 callers"
	Disturbed   = "256 callers, one reply in 1,000 late"
)

const (
	stallCallers = 256
	stalledOne   = 1000 // one cycle in so many, and so one reply in so many
	stallTime    = 100 * time.Millisecond
	stalledKey   = "stalled"
)

func measureStalls(ctx context.Context, b *bench) error {
	srv, peers := b.server(), peer.All()
	proxy := respproxy.Start(b.host, srv.addr)
	cases := []string{Undisturbed, Disturbed}
	return b.rounds(ctx, len(peers)*len(cases), func(i int) error {
		p, kase := peers[i/2], cases[i%2]
		if err := srv.flush(ctx); err != nil {
			return err
		}
		if kase == Disturbed {
			proxy.On(respproxy.Match{Key: stalledKey, Func: firstTime()}, respproxy.DelayReply(stallTime))
			defer proxy.Clear()
		}
		return b.use(ctx, p, proxy.Addr(), func(l peer.Locker) error {
			r, err := b.closed(ctx, stallCallers, othersThanStalled(l))
			if err != nil {
				return err
			}
			b.addTimes(kase, p.Name, r)
			return nil
		})
	})
}

// firstTime reports whether it has not seen a command before. It is a reply that
// is late, not a key: whoever asks again, with the same command, is answered.
func firstTime() func(args [][]byte) bool {
	var seen sync.Map
	return func(args [][]byte) bool {
		_, known := seen.LoadOrStore(string(bytes.Join(args, []byte{0})), nil)
		return !known
	}
}

// othersThanStalled are cycles of which one in a thousand is on a key of which
// the proxy delays the replies.
func othersThanStalled(l peer.Locker) load.Op {
	key := keys(stallCallers)
	return func(ctx context.Context, caller, n int) error {
		// Not all callers at once, and each soon.
		if (n+caller*37)%stalledOne != stalledOne-1 {
			return peer.Cycle(ctx, l, key(caller, n))
		}
		if err := peer.Cycle(ctx, l, fmt.Sprintf("%s=%d.%d", stalledKey, caller, n)); err != nil {
			return err
		}
		return load.ErrApart
	}
}
