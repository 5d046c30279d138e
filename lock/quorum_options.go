package lock

import (
	"fmt"
	"time"
)

// QuorumOption configures [NewQuorum].
type QuorumOption interface{ applyQuorum(cfg *quorumConfig) }

type quorumOption func(cfg *quorumConfig)

func (o quorumOption) applyQuorum(cfg *quorumConfig) { o(cfg) }

type quorumConfig struct {
	timeout time.Duration // of a call on one node
	factor  float64
}

// WithNodeTimeout sets how long a node may take for one call: 50 ms unless set.
// What takes longer counts as no answer. It should be short compared with
// the budget and the lease of the Locker, and long compared with a round trip. It panics if d is
// not positive.
func WithNodeTimeout(d time.Duration) QuorumOption {
	positive("WithNodeTimeout", d)
	return quorumOption(func(cfg *quorumConfig) { cfg.timeout = d })
}

// WithDriftFactor sets which part of a lease is given up for the difference of
// the nodes' clocks: 0.01 unless set. Holders stop relying on a lease that
// much earlier, and 2 ms more. It panics unless f is more than 0 and at most 0.5.
func WithDriftFactor(f float64) QuorumOption {
	if !(f > 0 && f <= 0.5) { // nor if it is no number
		panic(fmt.Sprintf("lock: WithDriftFactor(%v): the factor must be more than 0, and at most 0.5: what is left of a lease has to be of use", f))
	}
	return quorumOption(func(cfg *quorumConfig) { cfg.factor = f })
}

// drift is what redis.io's description of Redlock takes off a lease, with the
// factor in place of its one percent. The Locker asks for it, because a holder's
// validity is measured there: from before the first send of its token, whereas
// this store sees one send of several, and of a renewal returns no more than
// yes.
func (cfg *quorumConfig) drift(lease time.Duration) time.Duration {
	return time.Duration(float64(lease)*cfg.factor) + 2*time.Millisecond
}
