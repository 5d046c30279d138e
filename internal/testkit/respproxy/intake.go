package respproxy

import (
	"errors"
	"net"
	"sync"
)

var errEnded = errors.New("respproxy: connection ended")

// intake is the reader through which the requests goroutine reads its client. It decides, without a
// race, which bytes a client had sent before its connection ended: all bytes that a Read has
// returned, and no later ones. So a pipeline that was written in one call is forwarded either whole
// or, after a dropped command, not at all.
type intake struct {
	conn net.Conn

	mu    sync.Mutex
	idle  bool // all bytes that were read are handled; the reader waits, or reads no more
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
		return 0, errEnded // the bytes came after the end
	}
	i.idle = false
	return n, err
}

// rest notes that all bytes that were read are handled. It returns false after end.
func (i *intake) rest() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.idle = true
	return !i.ended
}

// end lets no more bytes in. It reports whether the reader has handled all
// bytes. If not, the reader is notified of the end after it has handled them.
func (i *intake) end() (handled bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	return i.idle
}
