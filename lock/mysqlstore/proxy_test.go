package mysqlstore_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fate is the fate of a COMMIT between client and server.
type fate uint8

const (
	passes     fate = iota
	loses           // its answer does not arrive, and neither does the end of the connection
	cuts            // the connection is cut after the server has answered it
	delays          // it arrives late, on a connection that its client has left
	swallows        // it never arrives, and the server is not notified of the end of the connection
	cutsBefore      // it never arrives, and the connection is cut
)

// late is the delay of a COMMIT that arrives late.
const late = 1500 * time.Millisecond

// proxy passes on the packets of a client and a server. Each COMMIT has a fate.
type proxy struct {
	net.Listener

	server string
	pick   func() fate
	commit string // begins the statements that have a fate
	ended  sync.WaitGroup
	stop   context.Context //nolint:containedctx // of the test
}

// first returns fates for COMMITs: f for the first one.
func first(f fate) (pick func() fate) {
	var once sync.Once
	return func() (how fate) {
		once.Do(func() { how = f })
		return how
	}
}

// startProxy starts a proxy before a server, and ends it with the test.
func startProxy(tb testing.TB, server string, pick func() fate) *proxy {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	stop, cancel := context.WithCancel(context.Background())
	p := &proxy{Listener: listener, server: server, pick: pick, commit: "COMMIT AND", stop: stop}
	p.ended.Go(func() {
		for {
			client, err := p.Accept()
			if err != nil {
				return
			}
			p.ended.Go(func() { p.serve(client) })
		}
	})
	tb.Cleanup(func() {
		cancel()
		_ = p.Close()
		p.ended.Wait()
	})
	return p
}

func (p *proxy) serve(client net.Conn) {
	server, err := new(net.Dialer).DialContext(p.stop, "tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	defer context.AfterFunc(p.stop, func() { _, _ = client.Close(), server.Close() })()
	var lost sync.Map // has an entry once answers are lost
	var answers sync.WaitGroup
	answers.Go(func() {
		defer client.Close()
		buffer := make([]byte, 1<<16)
		for {
			n, err := server.Read(buffer)
			if how, is := lost.Load("how"); is {
				if how == cuts {
					return
				}
				n = 0
			}
			if _, failed := client.Write(buffer[:n]); err != nil || failed != nil && n > 0 {
				return
			}
		}
	})
	p.pass(client, server, &lost)
	_ = server.Close()
	answers.Wait()
	_ = client.Close()
}

// pass passes on the client's packets until its connection ends.
func (p *proxy) pass(client, server net.Conn, lost *sync.Map) {
	for {
		packet, err := readPacket(client)
		if err != nil {
			return
		}
		if how := p.of(packet); how != passes {
			lost.Store("how", how)
			switch how {
			case cutsBefore:
				return
			case delays, swallows:
				wait := late
				if how == swallows {
					wait = time.Hour
				}
				waited, cancel := context.WithTimeout(p.stop, wait)
				<-waited.Done() // the server is not notified that the client leaves
				cancel()
				if p.stop.Err() != nil {
					return
				}
			case passes, loses, cuts:
			}
		}
		if _, err := server.Write(packet); err != nil {
			return
		}
		if how, is := lost.Load("how"); is && how != cuts {
			<-p.stop.Done()
			return
		}
	}
}

// of returns the fate of a packet.
func (p *proxy) of(packet []byte) fate {
	if strings.HasPrefix(string(packet[4:]), "\x03"+p.commit) {
		return p.pick()
	}
	return passes
}

func readPacket(from io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32([]byte{head[0], head[1], head[2], 0})
	packet := slices.Concat(head, make([]byte, length))
	_, err := io.ReadFull(from, packet[4:])
	return packet, err
}
