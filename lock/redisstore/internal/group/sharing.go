package group

import (
	"runtime"
	"time"
)

const (
	// directLimit is the number of commands in flight that have a round trip of their own,
	// unless a trial prefers to share. Above it, sharing is quicker than a connection each.
	directLimit = 12

	// turn is the time that a trial gives one way before the other way has its turn. A trial has
	// many turns, so that slices of the scheduler even out. After a trial there is a long time
	// without one, so that the way that serves less has at most a thirtieth of the time.
	turn    = 10 * time.Millisecond
	turns   = 24
	between = 4 * time.Second

	// gain is the factor by which sharing has to answer more commands to be chosen.
	gain = 1.1
)

// sharing decides by trial whether a few commands share round trips, from the second one on. The
// better way depends on the machine. Where system calls are slow, or other work keeps the
// processors busy, sharing served 1.2 to 2 times as many cycles of 8 to 16 callers. With free
// processors and fast calls it served 0.8 times as many of 8. So both ways take turns, and the
// way that answers more stays. If calls arrive at a fixed rate, both ways answer equally many.
// These calls do not share, since sharing would delay each by half a round trip.
type sharing struct {
	apart    int       // the most commands with a round trip of their own
	shared   bool      // sharing has answered more
	began    time.Time // the last trial
	left     int       // turns of the trial; 0: there is none
	since    time.Time // the beginning of the turn
	answered int       // commands in the turn
	ways     [2]way    // apart, and shared; older trials count by halves
}

type way struct{ answered, seconds float64 }

func (w way) rate() float64 { return w.answered / max(w.seconds, turn.Seconds()) }

// newSharing returns the choice of a group before its first trial. With a single processor,
// commands share: sharing served 1.8 times as many cycles of 8 callers, and 0.6 times as many of
// 2.
func newSharing(connections int) sharing {
	return sharing{apart: min(directLimit, connections), shared: runtime.GOMAXPROCS(0) == 1}
}

// limit returns the number of commands in flight that have a round trip of their own now.
func (s *sharing) limit() int {
	if s.sharesNow() {
		return 1
	}
	return s.apart
}

// sharesNow reports whether commands share now. In every second turn of a trial they go the way
// that has answered less.
func (s *sharing) sharesNow() bool { return s.shared != (s.left%2 == 1) }

// learn notes the number of commands that were answered. A trial begins only if several commands
// were in flight or waited. If round trips are long, there is no trial and no sharing: half of a
// long round trip is too long a wait.
func (s *sharing) learn(now time.Time, answered int, several, long bool) {
	switch {
	case s.apart == 1:
		return
	case long:
		s.shared, s.left = false, 0
		return
	case s.left == 0:
		if several && now.Sub(s.began) >= between {
			s.began, s.since, s.left, s.answered = now, now, turns, 0
		}
		return
	}
	s.answered += answered
	took := now.Sub(s.since)
	if took < turn {
		return
	}
	if took < 4*turn { // otherwise there was a pause
		w := &s.ways[0]
		if s.sharesNow() {
			w = &s.ways[1]
		}
		w.answered += float64(s.answered)
		w.seconds += took.Seconds()
	}
	s.since, s.answered = now, 0
	if s.left--; s.left > 0 {
		return
	}
	s.shared = s.ways[1].rate() > gain*s.ways[0].rate()
	for i := range s.ways {
		s.ways[i].answered /= 2
		s.ways[i].seconds /= 2
	}
}
