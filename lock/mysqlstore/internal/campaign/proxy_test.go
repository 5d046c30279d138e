package campaign_test

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/relay"
)

// fate is the fate of one command of a client and of its answer.
type fate uint8

const (
	passes       fate = iota
	loseRequest       // it never arrives, and nothing after it
	loseReply         // its answer does not arrive, and neither does the end of the connection
	cutRequest        // the connection is cut before it
	cutReply          // the connection is cut in the middle of its answer
	freeze            // nothing passes any more, and the server hears of no end
	delayReply        // its answer comes late
	delayRequest      // it comes late, perhaps on a connection that its client has left
	fates
)

func (f fate) String() string {
	return [fates]string{"passes", "lose request", "lose reply", "cut request", "cut reply", "freeze", "delay reply", "delay request"}[f]
}

// faults decides at random the fate of the commands of one process.
type faults struct {
	counts     *once.Counts
	over       func() bool
	mu         sync.Mutex
	r          *rand.Rand
	late       bool // the last COMMIT comes later than its caller waits
	noRenewals bool // all are lost
}

// phases are recognised by what a statement contains.
var phases = []struct{ name, text string }{
	{"commit", "COMMIT AND NO CHAIN"},
	{"fence", "NOWAIT"},
	{"end of a session", "KILL"},
	{"renewal", "GREATEST(over_at"},
	{"renewal", "over_at = GREATEST(ends_at"},
	{"settle", "SET settled = 1"},
	{"release", "DELETE FROM"},
	{"claim", "ON DUPLICATE KEY"},
	{"begin", "SAVEPOINT latch"},
	{"work", "INSERT INTO orders"},
}

func phaseOf(command []byte) string {
	for _, p := range phases {
		if strings.Contains(string(command), p.text) {
			return p.name
		}
	}
	return ""
}

func (f *faults) dropRenewals(drop bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noRenewals = drop
}

func (f *faults) lateCommit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.late
}

func (f *faults) decide(command []byte) (how fate, late time.Duration) {
	phase := phaseOf(command)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noRenewals && phase == "renewal" {
		f.counts.Add("renewal: lose request")
		return loseRequest, 0
	}
	if phase == "commit" {
		f.late = false
	}
	odds := map[string]int{"commit": 8, "renewal": 2}[phase] // there are few of those
	if odds == 0 {
		odds = 25
	}
	if phase == "" || f.r.IntN(odds) != 0 || f.over() {
		return passes, 0
	}
	how = fate(1 + f.r.IntN(int(fates)-1))
	late = time.Duration(f.r.IntN(900)) * time.Millisecond
	if how == delayRequest {
		late = time.Duration(f.r.IntN(2500)) * time.Millisecond
	}
	if phase == "renewal" && f.r.IntN(2) == 0 { // so that leases are lost
		how, late = delayRequest, 2*lease
	}
	if phase == "commit" {
		f.late = how == delayRequest && late > budget
	}
	f.counts.Add(phase + ": " + how.String())
	return how, late
}

// startProxy starts a proxy before the server at addr.
func startProxy(t *testing.T, addr string, f *faults) *relay.Relay {
	t.Helper()
	r, err := relay.Start(0, addr, func(client, server *net.TCPConn) relay.Conn {
		return &wire{client: client, server: server, faults: f, dead: make(chan struct{})}
	})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

// wire is one connection of a client.
type wire struct {
	client, server *net.TCPConn
	faults         *faults
	kill           sync.Once
	dead           chan struct{} // closed by Kill

	mu   sync.Mutex
	how  fate // of the answers from now on
	late time.Duration
}

// Kill is part of [relay.Conn].
func (w *wire) Kill() {
	w.kill.Do(func() {
		close(w.dead)
		_, _ = w.client.Close(), w.server.Close()
	})
}

// Run is part of [relay.Conn].
func (w *wire) Run() {
	var answers sync.WaitGroup
	answers.Go(w.answer)
	w.ask()
	_ = w.server.Close()
	answers.Wait()
}

func (w *wire) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.dead:
	}
}

// ask passes on what the client sends. The server does not hear that the client leaves before what was
// sent has arrived.
func (w *wire) ask() {
	for {
		packet, err := readPacket(w.client)
		if err != nil {
			return
		}
		if packet[3] == 0 && len(packet) > 4 && packet[4] == 3 { // a query
			how, late := w.faults.decide(packet[5:])
			w.mu.Lock()
			w.how, w.late = how, late
			w.mu.Unlock()
			switch how {
			case loseRequest, freeze:
				<-w.dead
				return
			case cutRequest:
				_ = w.client.Close()
				return
			case delayRequest:
				w.sleep(late)
			default:
			}
		}
		if _, err := w.server.Write(packet); err != nil {
			return
		}
	}
}

// answer passes on what the server sends.
func (w *wire) answer() {
	defer w.client.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := w.server.Read(buffer)
		w.mu.Lock()
		how, late := w.how, w.late
		w.late = 0
		w.mu.Unlock()
		switch how {
		case loseReply:
			n = 0
		case cutReply:
			_, _ = w.client.Write(buffer[:n/2])
			return
		case delayReply:
			w.sleep(late)
		default:
		}
		if _, failed := w.client.Write(buffer[:n]); err != nil || failed != nil && n > 0 {
			return
		}
	}
}

func readPacket(from io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	packet := make([]byte, 4+int(binary.LittleEndian.Uint32([]byte{head[0], head[1], head[2], 0})))
	copy(packet, head)
	_, err := io.ReadFull(from, packet[4:])
	return packet, err
}
