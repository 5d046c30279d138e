package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
)

// Stalls is the part in which one reply in a thousand comes 100 ms late: what
// that does to the others. The cycles that it is done to are not counted, and all
// cases run through a proxy.
const Stalls = "stalls"

// Cases of Stalls.
const (
	Undisturbed  = "256 callers"
	Disturbed    = "256 callers, one reply in 1,000 late"
	FewDisturbed = "64 callers, one reply in 1,000 late"
)

// stallCases are how many callers there are in each case, and how late the
// replies to some of them.
var stallCases = []struct {
	name    string
	callers int
	late    time.Duration
}{
	{Undisturbed, 256, 0},
	{Disturbed, 256, stallTime},
	{FewDisturbed, 64, stallTime},
}

const (
	stalledOne = 1000 // one cycle in so many, and so one reply in so many
	stallTime  = 100 * time.Millisecond
	stalledKey = "stalled"
)

func measureStalls(ctx context.Context, b *bench) (err error) {
	srv, peers := b.server(), peer.All()
	proxies := make([]*crew, len(stallCases))
	for i, c := range stallCases {
		if proxies[i], err = hire(ctx, 1, job{Kind: jobStalls, Addr: srv.addr, Delay: c.late}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, proxies[i].dismiss()) }()
	}
	return b.fewRounds(ctx, len(peers)*len(stallCases), func(i int) error {
		p, c, proxy := peers[i/len(stallCases)], stallCases[i%len(stallCases)], proxies[i%len(stallCases)]
		if err := srv.flush(ctx); err != nil {
			return err
		}
		if _, err := proxy.run(); err != nil {
			return err
		}
		return b.use(ctx, p, proxy.members[0].ready.Addr, func(l peer.Locker) error {
			op := othersThanStalled(l, c.callers)
			if _, err := load.Closed(ctx, c.callers, b.Window/5, op); err != nil {
				return err
			}
			r, err := b.charged(ctx, srv, c.name, p.Name, nil, func() (load.Result, error) {
				return load.Closed(ctx, c.callers, b.Window, op)
			})
			if err != nil {
				return err
			}
			b.addTimes(c.name, p.Name, r)
			return nil
		})
	})
}

// firstTime reports whether it has not seen a command before. It is a reply that
// is late, not a key: a caller that sends the same command again is answered.
func firstTime() func(args [][]byte) bool {
	var seen sync.Map
	return func(args [][]byte) bool {
		_, known := seen.LoadOrStore(string(bytes.Join(args, []byte{0})), nil)
		return !known
	}
}

// othersThanStalled are cycles of which one in a thousand is on a key of which
// the proxy delays the replies.
func othersThanStalled(l peer.Locker, callers int) load.Op {
	key := keys(callers)
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
