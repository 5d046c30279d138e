package group

import (
	"time"
)

const (
	// steady is the number of batches in flight while round trips are short: the server
	// executes one while others are written and read. At 256 callers, three served 12 %
	// less, and eight as much, with batches of 20 commands in place of 30.
	steady = 4

	// grouping is the number of waiting commands that make one more short round trip worth
	// its system calls.
	grouping = 16

	// short bounds a round trip that is mostly work, of the server and of this process.
	short = time.Millisecond

	// maxUsual bounds the time of a batch under load: a twenty-fifth of the default budget.
	// The rest of a caller's time is for the queue, from which its command can be taken
	// back.
	maxUsual = 20 * time.Millisecond

	// silence is the time without any answer after which a server is not merely slow.
	silence = 100 * time.Millisecond

	// memory is the pace at which the shortest round trip is forgotten while the window is
	// not full, since the network may have become slower: after 40 s, a round trip of 0.1 ms
	// no longer counts compared with one of 10 ms. If the window is full, a trial decides.
	memory = 10 * time.Second

	// retrial is the interval of trials after one has found that the server is not the
	// limit. The clock gives the moment, so that all processes of a server try at the same time: a
	// trial of one process among twenty would show no difference.
	retrial = 2 * time.Second
)

// window limits the commands in flight, in batches of at most share. It measures the time of each
// round trip. While a round trip takes no longer than the network needs, more of them at once
// serve more, and the window grows if it was the limit. When a round trip takes several times as
// long, there are two explanations. Either the server is the limit, and more commands on the wire
// would only wait there, where they cannot be taken back. Or the network has become slower. So a
// full window is halved on trial for a round trip: a slow server then answers sooner, and over a
// slow network nothing changes. A window that is not full stays as it is.
type window struct {
	share          int // commands a batch
	size           int // commands
	begin          int // the first size
	most           int
	usual          time.Duration // the usual time of a round trip
	shortest       time.Duration // the time of the shortest of the latest round trips
	trial          int           // size before the trial that is under way; 0: there is none
	inFlightBefore int           // commands in flight before the trial
	usualBefore    time.Duration // usual time before the trial
	tried          time.Time     // the multiple of retrial before the last trial
	serverLimits   bool          // the last trial found that the server is the limit
	last           time.Time     // when a batch was answered
	silentSince    time.Time     // departure of the first batch since the last answer; zero: none
	newest         time.Time     // the latest departure of an answered batch
	silenceEnded   time.Time     // the end of the last silence
}

func newWindow(share, batches int) window {
	begin := min(steady, batches) * share
	if share == 1 {
		begin = batches // commands do not share batches
	}
	return window{share: share, size: begin, begin: begin, most: batches * share}
}

// batch returns the most commands that a batch may have.
func (w *window) batch() int { return min(w.size, w.share) }

// room reports whether one more batch may leave. running is the number of batches in flight, and
// waiting the number of commands in the queue.
func (w *window) room(running, waiting int) bool {
	return running == 0 || running < w.size/w.share && (waiting >= min(grouping, w.share) || w.shortest > short)
}

// stalls reports whether the connection of b stalls: b is overdue, and a batch that left later
// was answered.
func (w *window) stalls(b *Batch, now time.Time) bool {
	return b.began.Before(w.newest) && w.overdue(b, now)
}

// overdue reports whether b takes many times the usual time.
func (w *window) overdue(b *Batch, now time.Time) bool {
	return now.Sub(b.began) > max(8*w.usual, 2*tick)
}

// overtaken reports whether the members of b are better sent again over another connection:
// the reply is late, and at least four batches that left later were answered. With one reply in a
// thousand late by 100 ms, p99 of all commands is 25 ms, and was 107 ms without this.
func (w *window) overtaken(b *Batch, now time.Time) bool {
	return b.overtakenBy >= 4 && !b.large && now.Sub(b.began) > max(3*w.usual, 6*time.Millisecond)
}

// ask notes the departure of a batch.
func (w *window) ask(b *Batch) {
	b.windowSize = w.size
	if w.silentSince.IsZero() {
		w.silentSince = b.began
	}
}

// silent reports whether the server answers nothing at all: for a tenth of a second, and for
// many times the usual time, although it was asked.
func (w *window) silent(now time.Time) bool {
	return !w.silentSince.IsZero() && now.Sub(w.silentSince) > max(8*w.usual, silence)
}

// learn adapts the window to a batch that was answered.
func (w *window) learn(b *Batch, now time.Time) {
	took := now.Sub(b.began)
	if forgotten := min(float64(now.Sub(w.last))/float64(memory), 1); !b.filled {
		w.shortest += time.Duration(float64(w.shortest) * forgotten)
	}
	if w.shortest == 0 || took < w.shortest {
		w.shortest = took
	}
	if w.silent(now) {
		w.silenceEnded = now
	}
	w.last, w.silentSince = now, time.Time{}
	if w.stalls(b, now) {
		return // the connection was slow, or the reply late: the server has answered others
	}
	// It counts as about eight times the usual time at most: a single slow batch hardly
	// changes the usual time, and a server that slows down is known after a few.
	w.usual += (min(took, 8*w.usual+short) - w.usual) / 8
	if b.began.After(w.newest) {
		w.newest = b.began
	}
	long := w.usual > 2*max(w.shortest, 2*short)
	over := w.serverLimits && w.usual > maxUsual
	turn := now.Truncate(retrial)
	switch {
	case w.trial > 0:
		if b.windowSize <= w.size { // otherwise it left before the trial
			w.decide(took, b.inFlight)
		}
	case b.filled && (long && turn.After(w.tried) || over):
		w.trial, w.inFlightBefore, w.usualBefore, w.tried = w.size, b.inFlight, w.usual, turn
		w.size = max(min(w.size, b.inFlight)/2, 1)
	case !b.limited || over || long && w.usual > maxUsual:
	case w.size < w.begin:
		w.size += 1 + w.size/8
	case w.shortest > short && max(took, w.usual) < 2*w.shortest:
		w.size = min(w.size+w.share, w.most)
	}
}

// decide judges the trial by the duration of a round trip and the number of commands in flight. If
// the round trip was slow, and almost as many commands are in flight as before the trial, nothing
// is decided: the window is halved again, and the trial goes on.
func (w *window) decide(took time.Duration, inFlight int) {
	w.serverLimits = took <= w.usualBefore*3/4
	if !w.serverLimits && inFlight > w.inFlightBefore*3/4 {
		w.size = max(w.size/2, 1)
		return
	}
	if !w.serverLimits {
		w.size, w.shortest = w.trial, took
	}
	w.usual, w.trial = took, 0
}
