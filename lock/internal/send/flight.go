package send

import (
	"context"
	"sync"
	"time"
)

// Landing is the possible effect of a send in the store.
type Landing uint8

// The effects of a send.
const (
	Nothing    Landing = iota // it was not applied, and will not be applied later
	Answered                  // it may have been applied, and will not be applied later
	Unanswered                // it may have been applied, or may be applied later
)

// Flight follows the sends of one call that are in flight or in doubt. A call has a Flight as
// soon as one of its sends has no answer. It is safe for concurrent use.
type Flight struct {
	sender *Sender

	mu     sync.Mutex
	doubt  Doubt
	landed []func()
}

// Doubt is the state of a [Flight] at one moment.
type Doubt struct {
	InFlight   int       // sends whose end is not known yet, and whose caller has left
	Unanswered int       // sends that ended without an answer
	Answered   int       // sends that were answered after their caller had left
	Last       time.Time // the latest end of a send that was lost or answered
}

// Depart counts a send whose caller no longer waits, and returns the Flight of the call that ctx
// belongs to, nil if there is none. It is called before the call returns, and followed by one Arrive.
func Depart(ctx context.Context) *Flight {
	t := From(ctx)
	if t == nil {
		return nil
	}
	f := t.call.inFlight(t)
	f.sender.Sends.Enter()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubt.InFlight++
	return f
}

// Arrive notes the end of a departed send.
func (f *Flight) Arrive(how Landing) {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.doubt.InFlight--
	f.end(how)
	landed := f.landed
	if f.doubt.InFlight > 0 {
		landed = nil
	}
	f.mu.Unlock()
	f.sender.Sends.Leave()
	for _, do := range landed {
		do()
	}
}

// end counts the end of a send. f.mu is held.
func (f *Flight) end(how Landing) {
	switch how {
	case Answered:
		f.doubt.Answered++
	case Unanswered:
		f.doubt.Unanswered++
	case Nothing:
		return
	}
	f.doubt.Last = time.Now()
}

// Doubt returns the present state. A nil Flight leaves no doubt.
func (f *Flight) Doubt() Doubt {
	if f == nil {
		return Doubt{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.doubt
}

// WhenLanded calls do when nothing is in flight, now or later. It may call do more than once. A
// call for several keys has one do for each of them.
func (f *Flight) WhenLanded(do func()) {
	f.mu.Lock()
	f.landed = append(f.landed, do)
	none := f.doubt.InFlight == 0
	f.mu.Unlock()
	if none {
		do()
	}
}
