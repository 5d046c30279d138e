package respproxy

import "sync"

// queue holds the exchanges of a connection that have no reply yet. It is not
// bounded: a client may write a whole pipeline before it reads.
type queue struct {
	mu     sync.Mutex
	list   []*exchange
	closed bool
	wake   chan struct{} // holds one token after a change
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

func (q *queue) push(x *exchange) {
	q.mu.Lock()
	q.list = append(q.list, x)
	q.mu.Unlock()
	q.signal()
}

// close notes that nothing more will be pushed.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

// head returns the oldest exchange, nil if there is none. done reports that no
// more exchanges will come.
func (q *queue) head() (x *exchange, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) == 0 {
		return nil, q.closed
	}
	return q.list[0], false
}

func (q *queue) pop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.list[0].over)
	q.list[0] = nil
	q.list = q.list[1:]
}

// abandon ends all exchanges that are still open.
func (q *queue) abandon() {
	for x, _ := q.head(); x != nil; x, _ = q.head() {
		q.pop()
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
