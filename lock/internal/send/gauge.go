package send

import "time"

const (
	memory  = 500 * time.Millisecond // measured time, after which older measurements count half
	enough  = 200 * time.Millisecond // measured time before the rate counts: at first, connections are dialled
	silence = 100 * time.Millisecond // longest time between two answers that is measured: in a longer one, nothing is served
	stale   = 100 * time.Millisecond // without a queue, after which a rate is forgotten: the store keeps up now
)

// Gauge estimates how long a claim would wait in a queue before a store, so that a claim which cannot be served in its
// time is refused when it arrives: certainly not applied, and long before its caller's time is over.
//
// It measures how many claims a second leave the queue, while there is one: an idle store does not show how fast it
// could be. It counts claims and not commands, because the ends of leases overtake the claims that wait, one for one.
//
// The rate is a ratio of means. A mean of ratios would be too low: most short
// times see no answer at all.
//
// It is for one goroutine at a time.
type Gauge struct {
	served  float64       // claims
	busy    time.Duration // while others waited
	waiting bool
	since   time.Time // the moment up to which busy was measured
}

// Waiting notes whether claims wait from now on.
func (g *Gauge) Waiting(now time.Time, waiting bool) {
	if waiting == g.waiting {
		return
	}
	switch {
	case g.waiting:
		g.measure(now)
	case now.Sub(g.since) > stale:
		g.served, g.busy = 0, 0
	}
	g.waiting, g.since = waiting, now
}

// Served notes that n claims were answered, while other claims waited or after they had waited
// themselves. Where answers take long, most of them come when no claim waits.
func (g *Gauge) Served(now time.Time, n int) {
	if g.waiting {
		if g.served == 0 {
			g.since = now // until the first answer, connections are dialled
		}
		g.measure(now)
	}
	g.served += float64(n)
}

func (g *Gauge) measure(now time.Time) {
	g.busy += min(now.Sub(g.since), silence)
	g.since = now
	if g.busy > 2*memory {
		g.busy /= 2
		g.served /= 2
	}
}

// Wait returns how long a claim would wait behind ahead others, 0 if none wait or too little was
// measured.
func (g *Gauge) Wait(ahead int) time.Duration {
	if ahead == 0 || g.busy < enough || g.served < 1 {
		return 0
	}
	return time.Duration(float64(ahead) / g.served * float64(g.busy))
}
