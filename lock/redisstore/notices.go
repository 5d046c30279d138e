package redisstore

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// notices keeps the channels of the keys that callers wait for, and wakes the callers.
type notices struct {
	client redis.UniversalClient

	mu       sync.Mutex
	topics   map[string]*topic   // by channel
	altered  map[string]struct{} // channels whose subscription has to change
	changed  chan struct{}       // has a value when altered has a channel
	used     bool                // there was a topic since the last retire
	listener *listener           // nil if there is none
	closed   bool
	warned   sync.Once
}

// topic is a channel on which a caller waits for a message.
type topic struct {
	waiting map[chan struct{}]struct{}
	asked   bool // SUBSCRIBE was sent
	begun   bool // SUBSCRIBE was confirmed
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
		w <- struct{}{} // the confirmation has already woken the waiters before this one
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

// alter lets the listener check the subscription to channel. n.mu is held.
func (n *notices) alter(channel string) {
	n.altered[channel] = struct{}{}
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// takeChanges returns the channels to subscribe to, and those to leave.
func (n *notices) takeChanges() (subscribe, unsubscribe []string) {
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

// resubscribe prepares for a new connection, which has no subscription.
func (n *notices) resubscribe() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for channel, t := range n.topics {
		t.asked, t.begun = false, false
		n.alter(channel)
	}
}

// wake notifies the waiters of a message on channel, or of the beginning of
// its subscription: earlier events were not reported.
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
		default: // the channel has a value already
		}
	}
}

// retire ends the listener if no caller has waited since its last call.
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

// noteEnded notes that the listener l has ended by itself.
func (n *notices) noteEnded(l *listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listener == l {
		n.listener = nil
	}
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
