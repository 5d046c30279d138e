package respproxy

import (
	"sync"
	"testing"
	"time"
)

// exchange is one command and the place of its reply.
type exchange struct {
	name   string
	action Action

	once     sync.Once
	released chan struct{} // closed by Deliver
	over     chan struct{} // closed when the server has answered, or never will
	answer   []byte        // the reply of the server; read it only after over is closed
}

func newExchange(name string) *exchange {
	return &exchange{name: name, released: make(chan struct{}), over: make(chan struct{})}
}

// local reports whether the command is never forwarded to the server.
func (x *exchange) local() bool {
	return x.action.kind == drop || x.action.kind == cutCommand || x.action.kind == ownReply
}

// deliver ends a hold. It returns false if x is not held, or is no longer held.
func (x *exchange) deliver() bool {
	first := false
	if x.action.kind == hold {
		x.once.Do(func() { close(x.released); first = true })
	}
	return first
}

// wait waits until x is over, and fails tb if this takes too long.
func (x *exchange) wait(tb testing.TB) bool {
	tb.Helper()
	timeout := time.NewTimer(waitTimeout)
	defer timeout.Stop()
	select {
	case <-x.over:
		return true
	case <-timeout.C:
		tb.Errorf("respproxy: a %q is not over after %v", x.name, waitTimeout)
		return false
	}
}
