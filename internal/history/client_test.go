package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// client does with one key what a Locker may do, and what a store has to bear
// besides: it repeats what was not answered or lets it be, comes back with
// tokens that are long over, and takes over from what it has seen abandoned,
// now or a while ago.
type client struct {
	family family
	store  *witness
	rng    *rand.Rand

	key    string
	asked  lock.Claim   // the same however often it is sent
	stage  stage        // of its token
	old    []lock.Claim // that are no longer in use
	seen   lock.Entry   // what refused the last claim
	minted int
}

// stage is the state of its token for a client.
type stage uint8

const (
	idle   stage = iota // there is none
	unsure              // the last claim was not answered
	holding
	ending // the last release or settle was not answered
)

// work makes calls until the history is long enough, or has taken too long.
func (c *client) work(ctx context.Context, r *room) {
	wear := 0
	for h := c.store.h; h.size() < operations && time.Since(h.began) < longest; {
		wear = c.turn(ctx, r.next(wear))
		time.Sleep(time.Duration(c.rng.Int64N(int64(c.family.rest)))) // leases run meanwhile
	}
}

// turn makes one call, on a key that may be another than that of the last turn,
// and returns how many outcomes are unknown.
func (c *client) turn(ctx context.Context, key string) (wear int) {
	if key != c.key {
		c.key, c.asked, c.stage, c.old, c.seen = key, lock.Claim{}, idle, nil, lock.Entry{}
	}
	ctx, cancel := context.WithTimeout(ctx, patienceOfCall)
	defer cancel()
	before := c.store.unknowns.Load()
	_ = c.act(ctx) // which has drawn its conclusions
	return int(c.store.unknowns.Load() - before)
}

func (c *client) act(ctx context.Context) error {
	type call = func(context.Context) error
	var do call
	switch c.stage {
	case unsure:
		do = []call{c.claim, c.release, c.get, nil}[c.pick(50, 25, 10, 15)]
	case holding:
		do = []call{c.renew, c.release, c.settle, c.get, c.claim, nil}[c.pick(20, 35, 15, 10, 10, c.lapses(60, 5))]
	case ending:
		do = []call{c.release, c.settle, c.get, nil}[c.pick(40, 20, 10, 30)]
	case idle:
	}
	if do == nil { // it has no token, or lets the one that it has be
		c.drop()
		do = []call{c.claimAnew, c.get, c.trespass, c.forget}[c.pick(60, 10, 20, c.lapses(5, 30))]
	}
	return do(ctx)
}

// lapses returns yes if an entry that no client ends ends by itself.
func (c *client) lapses(yes, no int) int {
	if c.family.lease < endless {
		return yes
	}
	return no
}

// pick returns i with a probability of weights[i] in their sum.
func (c *client) pick(weights ...int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	n := c.rng.IntN(sum)
	for i, w := range weights {
		if n < w {
			return i
		}
		n -= w
	}
	panic("unreachable")
}

func (c *client) drop() {
	if c.asked.Token != "" {
		c.old = append(c.old, c.asked)
	}
	c.asked, c.stage = lock.Claim{}, idle
}

func (c *client) claimAnew(ctx context.Context) error {
	c.minted++
	token := fmt.Sprintf("%d.%d", c.store.client, c.minted)
	c.asked = lock.Claim{
		Token: token, Attempt: 1, Fingerprint: []byte("of " + token), Owner: fmt.Sprintf("client %d", c.store.client),
		Lease: c.family.lease, Linger: c.family.linger, Fenced: c.family.fenced,
	}
	switch {
	case c.seen.State == lock.Abandoned && c.pick(3, 1) == 0:
		// Seen a while ago, so that others may have taken it over meanwhile.
		c.asked.Replaces, c.asked.Attempt = c.seen.Token, c.seen.Attempt+1
	case len(c.old) > 0 && c.pick(3, 1) == 1:
		// No entry bears that any longer, or none should.
		c.asked.Replaces, c.asked.Attempt = c.old[c.rng.IntN(len(c.old))].Token, 2
	}
	return c.claim(ctx)
}

func (c *client) claim(ctx context.Context) error {
	before := c.stage
	e, err := c.store.Claim(ctx, c.key, c.asked)
	switch {
	case errors.Is(err, lock.ErrNotApplied):
		if before == idle {
			c.drop()
		}
	case err != nil:
		c.stage = unsure
	case e.State == lock.Held && e.Token == c.asked.Token:
		c.store.h.counts.Add("event: claim granted")
		if before == unsure {
			c.store.h.counts.Add("event: claim granted to a repetition")
		}
		if before == idle && c.asked.Replaces != "" && c.asked.Replaces == c.seen.Token {
			c.store.h.counts.Add("event: takeover")
		}
		c.stage = holding
	default:
		c.drop()
		c.seen = e
	}
	return err
}

func (c *client) renew(ctx context.Context) error {
	ok, err := c.store.Renew(ctx, c.key, c.asked)
	if err == nil && !ok {
		c.drop()
	}
	return err
}

func (c *client) settle(ctx context.Context) error {
	c.minted++
	receipt := fmt.Sprintf("receipt %d.%d", c.store.client, c.minted)
	_, err := c.store.Settle(ctx, c.key, c.asked, []byte(receipt), c.family.keep)
	return c.ended(err)
}

func (c *client) release(ctx context.Context) error {
	_, err := c.store.Release(ctx, c.key, c.asked)
	return c.ended(err)
}

func (c *client) ended(err error) error {
	switch {
	case err == nil:
		c.drop()
	case !errors.Is(err, lock.ErrNotApplied):
		c.stage = ending
	}
	return err
}

func (c *client) get(ctx context.Context) error {
	e, err := c.store.Get(ctx, c.key)
	if err == nil {
		c.seen = e
	}
	return err
}

func (c *client) forget(ctx context.Context) error {
	if c.seen.Token == "" {
		return c.claimAnew(ctx)
	}
	_, err := c.store.Forget(ctx, c.key, c.seen.Token)
	return err
}

// trespass does something with a token that is over. Only an entry that it
// still has, because something was not answered, can change by that.
func (c *client) trespass(ctx context.Context) error {
	if len(c.old) == 0 {
		return c.get(ctx)
	}
	stale := c.old[len(c.old)-1]
	if c.pick(2, 1) == 1 {
		stale = c.old[c.rng.IntN(len(c.old))]
	}
	var err error
	switch c.pick(50, 25, 25) {
	case 0:
		_, err = c.store.Release(ctx, c.key, stale)
	case 1:
		_, err = c.store.Settle(ctx, c.key, stale, []byte("receipt of "+stale.Token), c.family.keep)
	case 2:
		_, err = c.store.Renew(ctx, c.key, stale)
	}
	return err
}

// room is a group of clients that meet at one key at a time. They go on to the next key after a
// number of operations, or when the key is worn out: each unknown outcome multiplies the possible
// orders, and a lasting receipt does not change any more.
type room struct {
	name string

	mu     sync.Mutex
	number int
	turns  int
	wear   int
}

const (
	turnsOnAKey = 120
	wearOfAKey  = 6
)

// next returns the key of the next turn, after a key with this wear.
func (r *room) next(wear int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns++
	r.wear += wear
	if r.turns > turnsOnAKey || r.wear > wearOfAKey {
		r.number, r.turns, r.wear = r.number+1, 0, 0
	}
	return fmt.Sprintf("%s-%d", r.name, r.number)
}
