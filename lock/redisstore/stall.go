package redisstore

import "time"

const (
	// patience is how long a batch may take until another worker does the work
	// of the one that waits for it, once that is seen: within as long again.
	patience = 2 * time.Millisecond

	// A batch is not waited for any more after so long, if that is so many times as
	// long as usual, and if so many that began after it were answered: then its
	// connection stalls, and not the server.
	hopelessAfter   = 6 * time.Millisecond
	hopelessSlack   = 3
	hopelessBatches = 6
)

// learn takes in that b was answered. What is usual is followed in steps, so that
// the few that stall, for however long, hardly change it.
func (l *lane) learn(b *batch) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	step := l.usual/16 + 10*time.Microsecond
	if now.Sub(b.began) < l.usual {
		step = -step
	}
	l.usual += step
	hopeless := now.Add(-max(hopelessAfter, hopelessSlack*l.usual))
	for _, other := range l.running {
		if !other.began.Before(b.began) {
			continue
		}
		other.overtaken++
		if other.overtaken >= hopelessBatches && other.began.Before(hopeless) {
			if !other.hopeless {
				other.hopeless = true
				l.lost++
			}
			other.evict(now, true)
		}
	}
}

// look sees to it that those that are queued do not wait for a batch that
// stalls, and that nobody waits for longer than is of use.
func (l *lane) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	limit := now.Add(-patience)
	for _, b := range l.running {
		if !b.began.Before(limit) {
			continue
		}
		if !b.stalled {
			b.stalled = true
			l.stalled++
		}
		b.evict(now, false)
	}
	for _, c := range l.queue.expired(now) {
		c.expire()
	}
	for range wary * steadyWorkers {
		l.staff()
	}
	if l.watched = len(l.running) > 0 || l.queue.len > 0; l.watched {
		l.watch.Reset(patience)
	}
}
