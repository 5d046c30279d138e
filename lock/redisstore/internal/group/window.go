package group

import (
	"time"
)

const (
	// steady is how many batches are out at once while round trips are short: one
	// is executed while others are written and read. At 256 callers three did 12 %
	// less, and eight as much with batches of 20 commands in place of 30.
	steady = 4

	// grouping is how many commands must wait for one more short round trip to be
	// worth its system calls.
	grouping = 16

	// short is a round trip that is mostly work, of the server's and our own.
	short = time.Millisecond

	// maxUsual is how long a batch may take under load: a twenty-fifth of the
	// default budget. The rest of a caller's time is for the queue, from which its
	// command can be taken back.
	maxUsual = 20 * time.Millisecond

	// silence is the least time without any answer that says more than that a server is
	// slow.
	silence = 100 * time.Millisecond

	// memory is how fast the shortest round trip is forgotten while the window is not full
	// (else a trial decides), since the network can have become slower: one of 0.1 ms no
	// longer holds up those of 10 after 40 s.
	memory = 10 * time.Second

	// retrial is how often the window is tried again after the server was found not to be
	// the limit. The clock says when, so that processes which share a server try at the same
	// time: one of twenty would see no difference by itself.
	retrial = 2 * time.Second
)

// window is how many commands may have left the queue, in batches of at most
// share. It follows the time from leaving the queue to the answer. While that is
// what the network takes, more round trips at once serve more, and the window
// grows, if it was what limited. When it is a multiple of that, either the server
// is the limit, and more commands on the wire would only wait there, where they cannot
// be taken back; or the way has become longer. So a full window is halved on trial for a
// round trip: a slow server answers sooner with fewer commands before it, and a long way
// is as long as before. A window that is not full is left as it is.
type window struct {
	share  int // commands a batch
	size   int // commands
	begin  int // size, at first
	most   int
	usual  time.Duration // of a round trip
	least  time.Duration // of the latest round trips
	trial  int           // size before the trial that is under way; 0: none is
	full   int           // commands that were out before it
	slow   time.Duration // usual, before it
	tried  time.Time     // the multiple of retrial before the last trial
	server bool          // the last trial found that the server is the limit
	last   time.Time     // when a batch was answered
	asked  time.Time     // when the first batch left after the last answer; zero: none has
	newest time.Time     // when the latest of those had left that were answered
}

func newWindow(share, batches int) window {
	begin := min(steady, batches) * share
	if share == 1 {
		begin = batches // there is nothing to gather
	}
	return window{share: share, size: begin, begin: begin, most: batches * share}
}

// batch is how many commands a batch may have.
func (w *window) batch() int { return min(w.size, w.share) }

// room reports whether one more batch may leave in addition to those that run, for so
// many commands that wait.
func (w *window) room(running, waiting int) bool {
	return running == 0 || running < w.size/w.share && (waiting >= min(grouping, w.share) || w.least > short)
}

// stalls reports whether b waits for a connection that stalls: batches that left
// after it were answered, and it is overdue.
func (w *window) stalls(b *Batch, now time.Time) bool {
	return b.began.Before(w.newest) && w.overdue(b, now)
}

// overdue reports whether b takes many times as long as usual.
func (w *window) overdue(b *Batch, now time.Time) bool {
	return now.Sub(b.began) > max(8*w.usual, 2*tick)
}

// overtaken reports whether the reply to b is late, and its members are better sent
// again over another connection: many batches that left later were answered. With one
// reply in a thousand late by 100 ms, p99 of all was 107 ms, and is 25 with this.
func (w *window) overtaken(b *Batch, now time.Time) bool {
	return b.overtaken >= 4 && !b.large && now.Sub(b.began) > max(3*w.usual, 6*time.Millisecond)
}

// ask notes that a batch leaves.
func (w *window) ask(b *Batch) {
	b.behind = w.size
	if w.asked.IsZero() {
		w.asked = b.began
	}
}

// silent reports whether the server answers nothing at all: for a tenth of a second and many
// times as long as usual, though it was asked.
func (w *window) silent(now time.Time) bool {
	return !w.asked.IsZero() && now.Sub(w.asked) > max(8*w.usual, silence)
}

// learn takes in a batch that was answered.
func (w *window) learn(b *Batch, now time.Time) {
	took := now.Sub(b.began)
	if forgotten := min(float64(now.Sub(w.last))/float64(memory), 1); !b.filled {
		w.least += time.Duration(float64(w.least) * forgotten)
	}
	if w.least == 0 || took < w.least {
		w.least = took
	}
	w.last, w.asked = now, time.Time{}
	if w.stalls(b, now) {
		return // its connection was slow, or its reply late; the server has answered others
	}
	// However long it took, it counts as eight times what is usual: a single one
	// hardly changes that, and a server that slows down is known after a few.
	w.usual += (min(took, 8*w.usual+short) - w.usual) / 8
	if b.began.After(w.newest) {
		w.newest = b.began
	}
	long := w.usual > 2*max(w.least, 2*short)
	over := w.server && w.usual > maxUsual
	turn := now.Truncate(retrial)
	switch {
	case w.trial > 0:
		if b.behind <= w.size { // else it left before the trial
			w.decide(took, b.out)
		}
	case b.filled && (long && turn.After(w.tried) || over):
		w.trial, w.full, w.slow, w.tried = w.size, b.out, w.usual, turn
		w.size = max(min(w.size, b.out)/2, 1)
	case !b.limited || over || long && w.usual > maxUsual:
	case w.size < w.begin:
		w.size += 1 + w.size/8
	case w.least > short && max(took, w.usual) < 2*w.least:
		w.size = min(w.size+w.share, w.most)
	}
}

// decide takes in what a round trip took in the trial, with so many commands out. A slow
// one says nothing unless fewer are out than before.
func (w *window) decide(took time.Duration, out int) {
	w.server = took <= w.slow*3/4
	if !w.server && out > w.full*3/4 {
		w.size = max(w.size/2, 1)
		return
	}
	if !w.server {
		w.size, w.least = w.trial, took
	}
	w.usual, w.trial = took, 0
}
