package lock

import (
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// task is one thing that the cleaner repeats until it is done.
type task struct {
	in      *taskQueue
	attempt func(closing bool) progress
	giveUp  func()  // called if the task is forgotten before it is done; may be nil
	of      Cleanup // what an operator is shown of it, except for its Since, which is born

	clock.Schedule // it is in no queue while it runs

	born    time.Time
	pause   time.Duration
	paid    bool // it runs, and has taken a token for that
	kicked  bool // it was asked for while it ran
	awaited bool // a caller waits for it
	settled bool // it was answered, and is only repeated to be sure
}

// taskQueue is the tasks of one kind, those that run not included.
type taskQueue struct {
	clock.Queue[*task]

	running  int
	answered int // one after the other, until one was not
}

// room is how many may run at once. If a caller waits for the next one, it is one more for
// each that was answered: after an outage, thousands may wait, and before its end, the store
// gets no more of them than of others.
func (q *taskQueue) room() int {
	if t, ok := q.Peek(); ok && t.awaited {
		return min(maxRunning+q.answered, maxAsked)
	}
	return maxRunning
}

// learn takes in how an attempt has ended.
func (q *taskQueue) learn(p progress, answered bool) {
	switch {
	case answered:
		q.answered = min(q.answered+1, maxAsked)
	case !p.unsent:
		q.answered = 0
	}
}

// progress is how far an attempt has brought a task. The zero progress is a call that
// had no answer.
type progress struct {
	done       bool
	unanswered bool          // though it is done
	unsent     bool          // nothing was asked of the store
	again      time.Duration // when the next attempt is to follow; 0: after a pause that grows
}

const longPause = 5 * time.Second

// postpone returns in how long t is next due. The pause grows from 10 ms to a second, which
// is what a landing command may cost another process, and after a quarter of a minute is
// five.
func (t *task) postpone(again time.Duration, at stage) (wait time.Duration) {
	t.pause = min(max(2*t.pause, 10*time.Millisecond), time.Second)
	if time.Since(t.born) > 15*time.Second {
		t.pause = longPause
	}
	wait = t.pause
	if again > 0 {
		wait, t.pause = again, 0
	}
	if at == draining || at == expedited && again == 0 { // a repeat that only confirms can wait as the holders do
		wait = min(wait, 50*time.Millisecond)
	}
	if t.kicked {
		t.kicked, wait = false, 0
	}
	return wait
}

func (t *task) forgotten() {
	if t.giveUp != nil {
		t.giveUp()
	}
}
