package wire

import "time"

const (
	// maxUnanswered is the number of unanswered commands on one connection, and of the first window.
	maxUnanswered = 64

	// fastLimit bounds the window of a server that answers all of it within short. At 256 callers and
	// more, such a server serves a fifth more than with maxUnanswered.
	fastLimit = 4 * maxUnanswered

	// maxWindow bounds the window.
	maxWindow = 16 * maxUnanswered

	// maxConns bounds the connections to a server, apart from those for large commands. A full window
	// needs half of them. The others are for those that late replies hold up: if one reply in a thousand
	// is late by 100 ms, and a hundred thousand come in a second, these are ten.
	maxConns = 32

	// short bounds a round trip that is mostly work, of the server and of this process.
	short = time.Millisecond

	// maxUsual bounds the time of a round trip under load: a twenty-fifth of the default budget.
	// The rest of a caller's time is for the queue, from which its command can be taken back.
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

// window limits the commands that are written and not answered. It measures the time of round
// trips. While a round trip takes no longer than the network needs, more of them at once serve
// more, and the window grows if it was the limit. When a round trip takes several times as long,
// there are two explanations. Either the server is the limit, and more commands on the wire
// would only wait there, where they cannot be taken back. Or the network has become slower. So a
// full window is halved on trial for a round trip: a slow server then answers sooner, and over a
// slow network nothing changes. A window that is not full stays as it is.
type window struct {
	size           int           // commands
	usual          time.Duration // the usual time of a round trip
	shortest       time.Duration // the time of the shortest of the latest round trips
	trial          int           // size before the trial that is under way; 0: there is none
	inFlightBefore int           // commands in flight before the trial
	usualBefore    time.Duration // usual time before the trial
	tried          time.Time     // the multiple of retrial before the last trial
	serverLimits   bool          // the last trial found that the server is the limit
	replies        int           // all so far
	last           time.Time     // of the latest reply
	silentSince    time.Time     // when the first command since the last reply was written; zero: none
	newest         time.Time     // when the latest of the answered commands was written
	silenceEnded   time.Time     // the end of the last silence
}

// trip is the state of the window when a command was written.
type trip struct {
	size     int  // of the window
	inFlight int  // commands, with this one
	replies  int  // all until then
	limited  bool // the command has waited for the window
	filled   bool // the window was full afterwards
}

// overdue reports whether a command that was written then takes many times the usual time.
func (w *window) overdue(written, now time.Time) bool {
	return now.Sub(written) > max(4*w.usual, 2*tick)
}

// passed reports whether half a window of commands that were written after c has been answered since its
// connection was last heard, at so many replies: c is late then. Fewer say nothing, since a proxy may serve
// its connections in turns.
func (w *window) passed(c *Command, heard int) bool {
	later := w.replies - max(c.trip.replies+c.trip.inFlight, heard)
	return later > max(w.size, maxUnanswered)/2 && w.newest.Sub(c.written) > tick/2
}

// silent reports whether the server answers nothing at all: for a tenth of a second, and for
// many times the usual time, although it was asked.
func (w *window) silent(now time.Time) bool {
	return !w.silentSince.IsZero() && now.Sub(w.silentSince) > max(8*w.usual, silence)
}

// narrow reports whether the window is the limit, and grows: a network takes most of a round trip, no
// round trip waits for another, and replies come.
func (w *window) narrow(now time.Time) bool {
	return w.shortest > short && w.usual < 2*w.shortest && w.size < maxWindow && now.Sub(w.last) < 2*w.usual
}

// learn adapts the window to the reply to a command that was written then. It came with n-1 more.
func (w *window) learn(written time.Time, b *trip, n int, now time.Time) {
	took := now.Sub(written)
	if forgotten := min(float64(now.Sub(w.last))/float64(memory), 1); !b.filled {
		w.shortest += time.Duration(float64(w.shortest) * forgotten)
	}
	if w.shortest == 0 || took < w.shortest {
		w.shortest = took
	}
	if w.silent(now) {
		w.silenceEnded = now
	}
	w.last, w.silentSince, w.replies = now, time.Time{}, w.replies+n
	if written.Before(w.newest) && w.overdue(written, now) {
		return // the connection was slow, or the reply late: the server has answered others
	}
	// It counts as about eight times the usual time at most: a single slow reply hardly
	// changes the usual time, and a server that slows down is known after a few.
	w.usual += (min(took, 8*w.usual+short) - w.usual) / 8
	if written.After(w.newest) {
		w.newest = written
	}
	long := w.usual > 2*max(w.shortest, 2*short)
	over := w.serverLimits && w.usual > maxUsual
	turn := now.Truncate(retrial)
	switch {
	case w.trial > 0:
		if b.size <= w.size { // otherwise it was written before the trial
			w.decide(took, b.inFlight)
		}
	case w.size > maxUnanswered && w.shortest <= short && w.usual > 2*short:
		w.size = maxUnanswered
	case b.filled && (long && turn.After(w.tried) || over):
		w.trial, w.inFlightBefore, w.usualBefore, w.tried = w.size, b.inFlight, w.usual, turn
		w.size = max(min(w.size, b.inFlight)/2, 1)
	case !b.limited || over || long && w.usual > maxUsual:
	case w.size < maxUnanswered || w.size < fastLimit && w.usual < short:
		w.size = min(w.size+n, fastLimit) // twice as many after a round trip, at most
	case w.narrow(now) && took < 2*w.shortest:
		w.size = min(w.size+n, maxWindow)
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
