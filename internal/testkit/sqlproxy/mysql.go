package sqlproxy

import (
	"encoding/binary"
	"io"
	"sync"

	"github.com/httplatch/httplatch/internal/testkit/relay"
)

// mysql is a connection that speaks the protocol of MySQL.
type mysql struct {
	*conn

	silences int64 // before the connection

	mu    sync.Mutex
	fault Fault // of the answers from now on
}

func newMySQL(c *conn) relay.Conn { return &mysql{conn: c, silences: c.proxy.silences.Load()} }

// Run is part of [relay.Conn].
func (c *mysql) Run() {
	var answers sync.WaitGroup
	answers.Go(c.answer)
	c.ask()
	_ = c.server.Close()
	answers.Wait()
}

// ask passes on the client's packets. The server is notified that the client has left only after
// all packets have arrived.
func (c *mysql) ask() {
	for ordinal := 1; ; ordinal++ {
		packet, err := readPacket(c.client)
		if err != nil {
			return
		}
		if packet[3] == 0 && len(packet) > 4 && packet[4] == 3 { // a query
			fault := c.proxy.judge(&Exchange{Conn: c.id, Ordinal: ordinal, SQL: []string{string(packet[5:])}})
			c.mu.Lock()
			c.fault = fault
			c.mu.Unlock()
			switch fault.Action {
			case LoseRequest, Freeze:
				<-c.done
				return
			case CutRequest:
				_ = c.client.Close()
				return
			case DelayRequest:
				_ = c.sleep(fault.Delay)
			case Pass, LoseReply, LoseReplyAndCut, CutReply, DelayReply, FailReply:
			}
		}
		if c.proxy.silences.Load() > c.silences {
			<-c.done
			return
		}
		if _, err := c.server.Write(packet); err != nil {
			return
		}
	}
}

// answer passes on the server's packets.
func (c *mysql) answer() {
	defer c.client.Close() //nolint:errcheck // nothing is to be done about it
	buffer := make([]byte, 1<<16)
	for {
		n, err := c.server.Read(buffer)
		c.mu.Lock()
		fault := c.fault
		c.fault.Delay = 0
		c.mu.Unlock()
		switch fault.Action {
		case LoseReply:
			n = 0
		case CutReply:
			_, _ = c.client.Write(buffer[:n/2])
			return
		case LoseReplyAndCut:
			return
		case DelayReply:
			_ = c.sleep(fault.Delay)
		case FailReply:
			n = copy(buffer, "\x24\x00\x00\x01\xff\x1d\x04#08S01Server shutdown in progress")
		case Pass, LoseRequest, CutRequest, Freeze, DelayRequest:
		}
		if _, failed := c.client.Write(buffer[:n]); err != nil || failed != nil && n > 0 {
			return
		}
	}
}

func readPacket(from io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err //nolint:wrapcheck // it is not looked at
	}
	packet := make([]byte, 4+int(binary.LittleEndian.Uint32([]byte{head[0], head[1], head[2], 0})))
	copy(packet, head)
	_, err := io.ReadFull(from, packet[4:])
	return packet, err //nolint:wrapcheck // it is not looked at
}
