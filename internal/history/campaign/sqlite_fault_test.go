//go:build unix

package campaign_test

import (
	"math/rand/v2"
	"time"
)

// step is a moment of an order in its process.
type step string

const (
	atClaim  step = "claim"  // from the call on
	atWork   step = "work"   // before its first statement
	atRow    step = "row"    // after the row was inserted
	atSettle step = "settle" // from the call on
	atAnswer step = "answer" // after COMMIT
)

// fault strikes an order at a step, after a delay.
type fault struct {
	Do    string        `json:",omitempty"`
	At    step          `json:",omitempty"`
	After time.Duration `json:",omitempty"`
	For   time.Duration `json:",omitempty"` // of a stop
}

// The kinds of faults.
const (
	doKill      = "killed"
	doStop      = "stopped"
	doLeave     = "its client is gone"
	doOutlast   = "longer than a lease"
	doInterrupt = "a statement is interrupted"
	doFill      = "the disk is full"
	doFail      = "the work fails"
)

func (f fault) name() string { return string(f.At) + ": " + f.Do }

// draw draws the fault of an order: none in two of three.
func draw(r *rand.Rand) fault {
	if r.IntN(3) != 0 {
		return fault{}
	}
	steps := []step{atClaim, atWork, atRow, atSettle, atSettle, atAnswer}
	f := fault{At: steps[r.IntN(len(steps))], After: time.Duration(r.IntN(300)) * time.Microsecond}
	if f.At == atSettle {
		f.After = time.Duration(r.IntN(3000)) * time.Microsecond // somewhere in the two commits
	}
	switch n := r.IntN(20); {
	case n < 6:
		f.Do = doKill
	case n < 9:
		f.Do, f.For = doStop, time.Duration(r.IntN(200))*time.Millisecond
		if r.IntN(4) == 0 {
			f.For = fileLease + time.Duration(r.IntN(600))*time.Millisecond
		}
	case n < 12:
		f.Do = doLeave
	case n < 14:
		f.Do, f.At = doOutlast, []step{atWork, atRow}[r.IntN(2)]
	case n < 16:
		f.Do, f.At = doInterrupt, []step{atWork, atRow}[r.IntN(2)]
	case n < 18:
		f.Do, f.At = doFill, []step{atWork, atRow}[r.IntN(2)]
	default:
		f.Do, f.At = doFail, []step{atWork, atRow}[r.IntN(2)]
	}
	return f
}
