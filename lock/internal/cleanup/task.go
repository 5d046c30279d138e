package cleanup

import (
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// Task is a call that a [Cleaner] repeats until it is done.
type Task struct {
	Subject

	Attempt func(closing bool) Progress
	GiveUp  func() // called if the task is forgotten before it is done; may be nil

	clock.Schedule // unqueued while the task runs

	in         *taskQueue
	born       time.Time
	pause      time.Duration
	paid       bool // its running attempt has taken a token
	kicked     bool // a caller asked for it while it ran
	awaited    bool // a caller waits for it
	confirming bool // it was answered, and is repeated to be sure
}

// Subject describes a [Task] to operators.
type Subject struct {
	Key   string // as given to the Locker
	Entry string // the key in the store
	Token string // of the claim
	Owner string // as claimed
	Kind  string // of the event that will end the task
}

// taskQueue holds the tasks of one kind, except running ones.
type taskQueue struct {
	clock.Queue[*Task]

	running  int
	answered int // in a row
}

// room returns how many tasks may run at the same time. If a caller waits for the next task, the
// number grows by one for each answer in a row, because thousands of callers may wait after an
// outage. During an outage there are no answers, so the number does not grow.
func (q *taskQueue) room() int {
	if t, ok := q.Peek(); ok && t.awaited {
		return min(maxRunning+q.answered, maxAsked)
	}
	return maxRunning
}

// noteAttempt counts the answers in a row.
func (q *taskQueue) noteAttempt(p Progress, answered bool) {
	switch {
	case answered:
		q.answered = min(q.answered+1, maxAsked)
	case !p.Unsent:
		q.answered = 0
	}
}

// Progress is the result of an attempt of a task. The zero Progress is a call without an answer.
type Progress struct {
	Done       bool
	Unanswered bool          // the task is done without an answer
	Unsent     bool          // no call was sent
	Again      time.Duration // the pause before the next attempt; 0: a pause that grows
}

const longPause = 5 * time.Second

// postpone returns the pause before the next attempt. It doubles from 10 ms to 1 s, so that a
// late command that lands refuses other processes for no longer. After 15 s it is 5 s.
func (t *Task) postpone(again time.Duration, at Stage) (wait time.Duration) {
	t.pause = min(max(2*t.pause, 10*time.Millisecond), time.Second)
	if time.Since(t.born) > 15*time.Second {
		t.pause = longPause
	}
	wait = t.pause
	if again > 0 {
		wait, t.pause = again, 0
	}
	if at == Draining || at == Expedited && again == 0 { // before Draining, a repeat that only confirms keeps its longer pause
		wait = min(wait, 50*time.Millisecond)
	}
	if t.kicked {
		t.kicked, wait = false, 0
	}
	return wait
}

func (t *Task) giveUp() {
	if t.GiveUp != nil {
		t.GiveUp()
	}
}
