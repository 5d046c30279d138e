package quorum_test

import (
	"context"
	"crypto/cipher"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/quorum"
)

// persistent is a quorum that claims again by itself when it was split, and when the
// holder named was never granted: nodes answer at different instants, between which a
// split claim takes back its vote and gets another.
type persistent struct {
	*quorum.Store
	granted *sync.Map // by key and token
}

func (p persistent) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	for {
		e, err := claimAgain(ctx, p.Store, key, c)
		if err != nil || e.State != lock.Held {
			return e, err
		}
		if e.Token == c.Token {
			p.granted.Store([2]string{key, c.Token}, true)
		}
		if _, ok := p.granted.Load([2]string{key, e.Token}); ok {
			return e, nil
		}
		fault.Sleep(ctx, time.Millisecond)
	}
}

// Forget waits until no call is in flight. A claim that reaches the last node after it would leave an
// entry on a minority, which the next Forget removes and reports.
func (p persistent) Forget(ctx context.Context, key, token string) (bool, error) {
	for quorum.TokensInFlight(p.Store) > 0 && ctx.Err() == nil {
		fault.Sleep(ctx, time.Millisecond)
	}
	return p.Store.Forget(ctx, key, token)
}

// uncomparable is a store that == panics for.
type uncomparable struct {
	lock.Store
	_ []cipher.AEAD
}

// remote is a store that is some way off.
type remote struct {
	lock.Store
	distance time.Duration
}

func (r *remote) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	fault.Sleep(ctx, r.distance)
	return r.Store.Claim(ctx, key, c)
}

// inspected is a node whose operator's calls fail, if err is not nil, after some
// entries.
type inspected struct {
	*fault.Store
	err   error
	after int
}

func (n *inspected) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		i := 0
		for e, err := range n.Server().(lock.Inspector).List(ctx) {
			if n.err != nil && i == n.after {
				break
			}
			i++
			if !yield(e, err) {
				return
			}
		}
		if n.err != nil {
			yield(lock.Entry{}, n.err)
		}
	}
}

func (n *inspected) Page(context.Context, string, int, func(string) bool) ([]lock.Entry, string, error) {
	return nil, "", errors.ErrUnsupported
}

func (n *inspected) Forget(ctx context.Context, key, token string) (bool, error) {
	if n.err != nil {
		return false, n.err
	}
	return n.Server().(lock.Inspector).Forget(ctx, key, token)
}

// checked is a node with a Check and with names.
type checked struct {
	lock.Store
	err     error
	servers []string
}

func (c *checked) Describe() lock.Description {
	return lock.Description{
		Check:   func(context.Context) error { return c.err },
		Servers: func(context.Context) ([]string, error) { return c.servers, nil },
	}
}

// panicking is a node whose client has a hook that panics, if it does.
type panicking struct {
	*fault.Store
	lock.Inspector

	does bool
}

func (p panicking) Forget(ctx context.Context, key, token string) (bool, error) {
	if p.does {
		panic("a hook's")
	}
	return p.Inspector.Forget(ctx, key, token)
}

func (p panicking) Describe() lock.Description {
	about := p.Store.Describe()
	about.Check = func(context.Context) error {
		if p.does {
			panic("a hook's")
		}
		return nil
	}
	return about
}
