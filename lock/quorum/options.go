package quorum

import (
	"fmt"
	"time"
)

// Option configures [New].
type Option interface{ apply(cfg *config) }

type option func(cfg *config)

func (o option) apply(cfg *config) { o(cfg) }

type config struct {
	timeout time.Duration // of a call on one node
	factor  float64
}

// WithNodeTimeout sets how long a node may take for one call: 50 ms unless set.
// A later answer does not count. It should be short compared with the budget and the lease of the
// Locker, and long compared with a round trip. It panics if d is not positive.
func WithNodeTimeout(d time.Duration) Option {
	if d <= 0 {
		panic(fmt.Sprintf("quorum: WithNodeTimeout(%v): the duration must be positive", d))
	}
	return option(func(cfg *config) { cfg.timeout = d })
}

// WithDriftFactor sets the part of a lease that holders give up at its end, and 2 ms more, for
// the difference of the nodes' clocks: 0.01 unless set. It panics unless f is more than 0 and at
// most 0.5.
func WithDriftFactor(f float64) Option {
	if !(f > 0 && f <= 0.5) { // NaN is neither
		panic(fmt.Sprintf("quorum: WithDriftFactor(%v): the factor must be more than 0, and at most 0.5: what is left of a lease has to be of use", f))
	}
	return option(func(cfg *config) { cfg.factor = f })
}
