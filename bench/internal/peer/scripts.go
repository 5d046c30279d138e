package peer

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// Scripted is [Ours] on a server whose own compare-and-act it does not use.
const Scripted = "httplatch, scripts"

// Compared are the contenders on a server that compares and acts by itself.
func Compared() []Peer {
	auto, _ := Named(AutoPipelined)
	return []Peer{{Ours, openLatch}, {Scripted, openScripted}, auto}
}

func openScripted(_ context.Context, t Target) (Locker, error) {
	l := &latch{client: NewClient(t)}
	l.store = redisstore.New(l.client)
	l.locker = NewLocker(ByToken{l.store})
	return l, nil
}

// ByToken is a store that gets only the token of a claim: it cannot compare whole
// values, so its scripts compare tokens.
type ByToken struct{ *redisstore.Store }

// Renew is part of [lock.Store].
func (s ByToken) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return s.Store.Renew(ctx, key, lock.Claim{Token: c.Token, Lease: c.Lease, Linger: c.Linger})
}

// Settle is part of [lock.Store].
func (s ByToken) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	return s.Store.Settle(ctx, key, lock.Claim{Token: c.Token}, receipt, keep)
}

// Release is part of [lock.Store].
func (s ByToken) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return s.Store.Release(ctx, key, lock.Claim{Token: c.Token})
}
