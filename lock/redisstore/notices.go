package redisstore

import (
	"sync"
	"time"
)

// notices keeps the channels of the keys that callers wait for, and wakes the callers.
type notices struct {
	nodes *nodes

	mu         sync.Mutex
	waiting    map[string]map[chan struct{}]struct{} // callers, by channel
	subscribed map[string]bool                       // channels of the listener; true: confirmed
	changed    chan struct{}                         // has a value when subscriptions may have to change
	used       bool                                  // a caller has waited since the last retire
	listener   *listener                             // nil if there is none
	closed     bool
	warned     sync.Once
}

func newNotices(n *nodes) *notices {
	return &notices{
		nodes:      n,
		waiting:    make(map[string]map[chan struct{}]struct{}),
		subscribed: make(map[string]bool),
		changed:    make(chan struct{}, 1),
	}
}

func (n *notices) watch(channel string) (wake <-chan struct{}, stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, func() {}
	}
	w := make(chan struct{}, 1)
	if n.waiting[channel] == nil {
		n.waiting[channel] = make(map[chan struct{}]struct{})
		n.change()
	}
	n.waiting[channel][w] = struct{}{}
	if n.subscribed[channel] {
		w <- struct{}{} // the confirmation has already woken the waiters before this one
	}
	n.used = true
	if n.listener == nil {
		n.listener = listen(n)
	}
	return w, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if delete(n.waiting[channel], w); len(n.waiting[channel]) == 0 {
			delete(n.waiting, channel)
			n.change()
		}
	}
}

// change lets the listener check its subscriptions.
func (n *notices) change() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// takeChanges returns the channels to subscribe to, and those to leave.
func (n *notices) takeChanges() (subscribe, unsubscribe []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for channel := range n.subscribed {
		if n.waiting[channel] == nil {
			delete(n.subscribed, channel)
			unsubscribe = append(unsubscribe, channel)
		}
	}
	for channel := range n.waiting {
		if _, asked := n.subscribed[channel]; !asked {
			n.subscribed[channel] = false
			subscribe = append(subscribe, channel)
		}
	}
	return subscribe, unsubscribe
}

// resubscribe prepares for a new connection, which has no subscription.
func (n *notices) resubscribe() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.subscribed)
	n.change()
}

// wake notifies the waiters of a message on channel, or of the beginning of
// its subscription: earlier events were not reported.
func (n *notices) wake(channel string, begun bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, asked := n.subscribed[channel]; asked && begun {
		n.subscribed[channel] = true
	}
	for w := range n.waiting[channel] {
		select {
		case w <- struct{}{}:
		default: // the channel has a value already
		}
	}
}

// retire ends the listener if no caller has waited since its last call.
func (n *notices) retire() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.used || len(n.waiting) > 0 {
		n.used = len(n.waiting) > 0
		return false
	}
	n.listener = nil
	return true
}

// close ends the listener, and waits for its end, at most for the time in which
// a server has to answer.
func (n *notices) close() {
	n.mu.Lock()
	n.closed = true
	l := n.listener
	n.mu.Unlock()
	if l == nil {
		return
	}
	l.stop()
	timer := time.NewTimer(openTimeout)
	defer timer.Stop()
	select {
	case <-l.ended:
	case <-timer.C:
	}
}
