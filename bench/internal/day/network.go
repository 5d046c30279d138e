package day

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
)

//go:embed testdata/trips.txt
var tripsFile string

// quantile says that a share of all values is at most that long.
type quantile struct {
	share float64
	value time.Duration
}

// quantiles are in the order of their shares, from 0 to 1.
type quantiles []quantile

func readQuantiles(text string) (q quantiles, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("quantiles: %q is not a share and microseconds", line)
		}
		share, err := strconv.ParseFloat(fields[0], 64)
		micros, err2 := strconv.ParseFloat(fields[1], 64)
		if err = errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("quantiles: %q: %w", line, err)
		}
		q = append(q, quantile{share, time.Duration(micros * float64(time.Microsecond))})
	}
	if len(q) < 2 || q[0].share != 0 || q[len(q)-1].share != 1 {
		return nil, errors.New("quantiles: shares go from 0 to 1")
	}
	return q, nil
}

// at is the value below which that share is.
func (q quantiles) at(share float64) time.Duration {
	for i, hi := range q[1:] {
		if share <= hi.share {
			lo := q[i]
			return lo.value + time.Duration(float64(hi.value-lo.value)*(share-lo.share)/(hi.share-lo.share))
		}
	}
	return q[len(q)-1].value
}

// fate is the fault that a request or its reply meets on the network, if any.
type fate uint8

const (
	arrives     fate = iota
	requestLost      // and nothing on its connection arrives any more
	replyLost        // after it was applied, and all later ones of its connection
	requestLate
)

const longestLate = time.Minute

// network is between the desks and the server.
type network struct {
	server *server
	trips  quantiles
	loss   float64 // share of requests that meet a fate

	requests atomic.Int64

	mu     sync.Mutex
	random *rand.Rand
}

// meet draws the fate of a request, and its duration.
func (n *network) meet() (f fate, takes time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	takes = n.trips.at(n.random.Float64())
	if n.random.Float64() < n.loss {
		switch d := n.random.Float64(); {
		case d < 0.5:
			f = replyLost
		case d < 0.75:
			f = requestLost
		default:
			f = requestLate
			takes += time.Duration(n.random.Float64() * float64(longestLate))
		}
	}
	return f, takes
}

// dial connects a desk with the server.
func (n *network) dial(from *process) (net.Conn, error) {
	_, takes := n.meet()
	time.Sleep(takes)
	from.awake()
	conn, err := n.server.dial()
	if err != nil || from.dead() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.Join(os.NewSyscallError("connect", syscall.ECONNREFUSED), err)}
	}
	l := &link{Conn: conn, network: n, from: from, queue: make(chan parcel, 64)}
	go l.carry()
	return l, nil
}

// maxLag is the longest delay of a step on its way to the database, as the store describes it.
var maxLag = faketx.New().Describe().MaxLag

// step carries one step of a transaction from a process to the database, which is on the server,
// and carries the reply back.
func (n *network) step(ctx context.Context, from *process, apply func() error) error {
	from.awake()
	if n.server.isDown() {
		return fmt.Errorf("%w: %w", lock.ErrNotApplied, errDown)
	}
	n.requests.Add(1)
	f, takes := n.meet()
	takes = min(takes, maxLag)
	answered := make(chan error, 1)
	if !from.dead() && f != requestLost {
		go func() {
			time.Sleep(takes)
			n.server.awake()
			if err := apply(); f != replyLost {
				answered <- err
			}
		}()
	}
	select {
	case err := <-answered:
		if from.awake(); !from.dead() {
			return err
		}
		<-ctx.Done()
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// parcel is the data of one write.
type parcel struct {
	data []byte
	due  time.Time
	fate fate
}

// link is a connection as a desk has it.
type link struct {
	net.Conn // with the server

	network *network
	from    *process
	queue   chan parcel

	mu     sync.Mutex
	last   time.Time // when the last parcel is due
	mute   bool      // nothing more arrives
	closed bool
}

// Write sends b as one request.
func (l *link) Write(b []byte) (int, error) {
	l.from.awake()
	f, takes := l.network.meet()
	l.network.requests.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, net.ErrClosed
	}
	if l.mute || l.from.dead() {
		return len(b), nil
	}
	if due := time.Now().Add(takes); due.After(l.last) {
		l.last = due
	}
	l.mute = f == requestLost || f == replyLost
	if f == requestLost {
		return len(b), nil
	}
	select {
	case l.queue <- parcel{append([]byte(nil), b...), l.last, f}:
		return len(b), nil
	default:
		return 0, os.ErrDeadlineExceeded // the buffers are full
	}
}

// carry brings what was sent to the server, also after a Close: what was on its way
// arrives.
func (l *link) carry() {
	for p := range l.queue {
		time.Sleep(time.Until(p.due))
		l.network.server.awake()
		if _, err := l.Conn.Write(p.data); err != nil {
			break
		}
		if p.fate == replyLost {
			_, _ = io.Copy(io.Discard, l.Conn)
		}
	}
	_ = l.Conn.Close()
	for range l.queue {
	}
}

// Read returns what the server has sent, unless nothing arrives any more.
func (l *link) Read(b []byte) (int, error) {
	for {
		n, err := l.Conn.Read(b)
		l.from.awake()
		l.mu.Lock()
		mute, closed := l.mute, l.closed
		l.mu.Unlock()
		switch {
		case closed:
			return 0, net.ErrClosed
		case errors.Is(err, io.ErrClosedPipe):
			return 0, io.EOF
		case err != nil:
			return n, err
		case !mute && !l.from.dead():
			return n, nil
		}
	}
}

// Close is part of [net.Conn].
func (l *link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	close(l.queue)
	return l.SetReadDeadline(time.Unix(1, 0))
}
