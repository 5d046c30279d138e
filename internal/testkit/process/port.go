package process

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// These ports are below the ephemeral range of every system. A port in that
// range could become the source port of any outgoing connection while one of our
// servers is down, and a client that dials it could even connect to itself. A
// server in cluster mode also uses the port 10,000 above its own for the bus,
// and these ports are below the range too.
const firstPort, ports = 12000, 10000

// reservations holds the UDP port of the same number for each port that FreePort has returned. It
// keeps the port from other test processes while our server or proxy there is down: they would put
// a server of theirs where our clients still dial.
var (
	reservationsMu sync.Mutex
	reservations   []io.Closer
)

// FreePort returns a TCP port of 127.0.0.1 on which no process listens. It
// returns the port to no other caller, of this process or of another, before this process ends. A
// program that does not ask FreePort may take the port at any time.
func FreePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(ports) //nolint:gosec // not a secret
		if reserve(port) {
			return port, nil
		}
	}
	return 0, errors.New("process: no free port")
}

func reserve(port int) bool {
	var lc net.ListenConfig
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	reservation, err := lc.ListenPacket(context.Background(), "udp", addr)
	if err != nil {
		return false
	}
	if !unused(port) {
		_ = reservation.Close()
		return false
	}
	reservationsMu.Lock()
	defer reservationsMu.Unlock()
	reservations = append(reservations, reservation)
	return true
}
