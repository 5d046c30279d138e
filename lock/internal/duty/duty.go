// Package duty has what is still to be done in the background after calls that a store did not
// answer: settles, questions for the outcome of a commit, and the removal of entries that have no
// holder.
package duty

import (
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// Duty is a call that a [Queue] repeats until it is done.
type Duty struct {
	Subject

	Try    func(closing bool) Progress
	GiveUp func() // called if the duty is forgotten before it is done; may be nil
	Size   int    // bytes that it keeps in memory
	Shrink func() // frees them: called before the first Try if there is no room; may be nil if Size is 0

	clock.Schedule // unqueued while Try runs

	kind       *kind
	token      *token // of an orphan
	born       time.Time
	pause      time.Duration
	paid       bool // its running Try has taken a token
	again      bool // it was asked for while it ran
	confirming bool // it was answered, and is repeated to be sure
}

// Subject describes a [Duty] to operators.
type Subject struct {
	Key   string // as given to the Locker
	Entry string // the key in the store
	Token string // of the claim
	Owner string // as claimed
	Kind  string // of the event that will end the duty
}

// Progress is the result of a Try. The zero Progress is a call without an answer.
type Progress struct {
	Done       bool
	Unanswered bool          // the duty is done without an answer
	Unsent     bool          // no call was sent
	Shrunk     bool          // the bytes of the duty are free
	Again      time.Duration // the pause before the next Try; 0: a pause that grows
}

// answered reports whether the store has answered.
func (p *Progress) answered() bool { return p.Done && !p.Unanswered || p.Again > 0 }

const longPause = 5 * time.Second

// postpone returns the pause before the next Try. It doubles from 10 ms to 1 s: an
// entry that lands late is removed within the next pause. After 15 s it is 5 s.
func (d *Duty) postpone(again time.Duration, at Stage) (wait time.Duration) {
	d.pause = min(max(2*d.pause, 10*time.Millisecond), time.Second)
	if time.Since(d.born) > 15*time.Second {
		d.pause = longPause
	}
	wait = d.pause
	if again > 0 {
		wait, d.pause = again, 0
	}
	if at == Draining || at == Expedited && again == 0 { // before Draining, a repeat that only confirms keeps its longer pause
		wait = min(wait, 50*time.Millisecond)
	}
	if d.again {
		d.again, wait = false, 0
	}
	return wait
}

func (d *Duty) giveUp() {
	if d.GiveUp != nil {
		d.GiveUp()
	}
}
