package respproxy

import (
	"errors"
	"net"
	"sync"
)

var errEnded = errors.New("respproxy: connection ended")

// intake is the reader through which the requests goroutine reads its client. It decides,
// without a race, what a client had sent before its connection ended: all that
// a Read has returned, and nothing after it. A pipeline that was written at
// once is so either forwarded whole or, behind a dropped command, not at all.
type intake struct {
	conn net.Conn

	mu    sync.Mutex
	idle  bool // all that was read has been handled; the reader waits, or reads no more
	ended bool
}

// Read fails with errEnded after end.
func (i *intake) Read(b []byte) (int, error) {
	if !i.rest() {
		return 0, errEnded
	}
	n, err := i.conn.Read(b)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return 0, errEnded // it came after the end
	}
	i.idle = false
	return n, err
}

// rest says that all that was read has been handled; false after end.
func (i *intake) rest() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.idle = true
	return !i.ended
}

// end lets nothing more in. It reports whether the reader has handled all that
// is in; if not, the reader learns of the end when it has.
func (i *intake) end() (handled bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	return i.idle
}
