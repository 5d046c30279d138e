package overload

import (
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"
)

// retransmitted is the shortest time after which the kernel sends a lost packet again (tcp(7),
// RTO_MIN of Linux). Data that was sent after the packet waits for it.
const retransmitted = 200 * time.Millisecond

// way is the line between the proxy and its clients. Its zero value is as quick as can be.
type way struct {
	trip atomic.Int64 // by how much a reply is late
	lost atomic.Int64 // packets in a million, of both directions
}

// Far makes each round trip take d longer from now on.
func (p *Proxy) Far(d time.Duration) { p.way.trip.Store(int64(d)) }

// Lose loses that share of the packets from now on. TCP sends them again: what they
// carry arrives [retransmitted] later, and all that follows on their connection behind it.
func (p *Proxy) Lose(share float64) { p.way.lost.Store(int64(share * 1e6)) }

// wait returns the time from the sending of a command to the arrival of its reply: each of the two
// packets can be lost.
func (w *way) wait() (d time.Duration) {
	d = time.Duration(w.trip.Load())
	for range 2 {
		if lost := w.lost.Load(); lost > 0 && rand.N(int64(1e6)) < lost { //nolint:gosec // not a secret
			d += retransmitted
		}
	}
	return d
}

// pieces bounds the pieces of one connection in flight.
const pieces = 1024

type piece struct {
	due  time.Time
	data []byte
}

// line brings what it is given to a client, each piece when it is due and none before those
// that were sent earlier.
type line struct {
	way   *way
	queue chan piece
	last  time.Time // when the last piece is due
}

func newLine(w *way) *line { return &line{way: w, queue: make(chan piece, pieces)} }

// send takes data, which is copied.
func (l *line) send(data []byte) {
	if due := time.Now().Add(l.way.wait()); due.After(l.last) {
		l.last = due
	}
	l.queue <- piece{l.last, append([]byte(nil), data...)}
}

// deliver writes to the client until the queue is closed, also when the client has left.
func (l *line) deliver(to net.Conn) {
	for p := range l.queue {
		time.Sleep(time.Until(p.due))
		_, _ = to.Write(p.data)
	}
}
