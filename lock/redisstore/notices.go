package redisstore

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// notices is what a store receives about the keys that callers wait for.
type notices struct {
	client redis.UniversalClient

	mu       sync.Mutex
	topics   map[string]*topic   // by channel
	altered  map[string]struct{} // channels that the listener has to look at
	changed  chan struct{}       // tells it to
	used     bool                // there was a topic since the listener last asked
	listener *listener           // nil if there is none
	closed   bool
	warned   sync.Once
}

// topic is a channel on which a caller waits for a message.
type topic struct {
	waiting map[chan struct{}]struct{}
	asked   bool // SUBSCRIBE was sent
	begun   bool // and confirmed
}

func newNotices(client redis.UniversalClient) *notices {
	return &notices{
		client:  client,
		topics:  make(map[string]*topic),
		altered: make(map[string]struct{}),
		changed: make(chan struct{}, 1),
	}
}

func (n *notices) watch(channel string) (wake <-chan struct{}, stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, func() {}
	}
	t := n.topics[channel]
	if t == nil {
		t = &topic{waiting: make(map[chan struct{}]struct{})}
		n.topics[channel] = t
	}
	w := make(chan struct{}, 1)
	t.waiting[w] = struct{}{}
	if t.begun {
		w <- struct{}{} // the confirmation that woke the others has passed
	}
	n.used = true
	if n.listener == nil {
		n.listener = listen(n)
	}
	if !t.asked {
		n.alter(channel)
	}
	return w, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if delete(t.waiting, w); len(t.waiting) == 0 {
			n.alter(channel)
		}
	}
}

// alter has the listener look at channel. n.mu is held.
func (n *notices) alter(channel string) {
	n.altered[channel] = struct{}{}
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// alterations is what is to be subscribed to and what no longer.
func (n *notices) alterations() (subscribe, unsubscribe []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for channel := range n.altered {
		t := n.topics[channel]
		switch {
		case t == nil:
		case len(t.waiting) == 0:
			delete(n.topics, channel)
			if t.asked {
				unsubscribe = append(unsubscribe, channel)
			}
		case !t.asked:
			t.asked = true
			subscribe = append(subscribe, channel)
		}
	}
	clear(n.altered)
	return subscribe, unsubscribe
}

// renew is for a new connection: nothing is subscribed to.
func (n *notices) renew() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for channel, t := range n.topics {
		t.asked, t.begun = false, false
		n.alter(channel)
	}
}

// wake notifies the waiters that there was a message on channel, or that the
// subscription to it has begun: earlier events were not reported.
func (n *notices) wake(channel string, begun bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.topics[channel]
	if t == nil {
		return
	}
	t.begun = t.begun || begun
	for w := range t.waiting {
		select {
		case w <- struct{}{}:
		default: // it has one already
		}
	}
}

// retire ends the listener if no caller has waited since it last asked.
func (n *notices) retire() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.used || len(n.topics) > 0 {
		n.used = len(n.topics) > 0
		return false
	}
	n.listener = nil
	return true
}

// left is what the listener l says when it has ended for another reason.
func (n *notices) left(l *listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listener == l {
		n.listener = nil
	}
}

// close ends the listener. It waits for that, but not longer than for a server
// that does not answer.
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
