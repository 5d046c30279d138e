package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// These ports are below the ephemeral range of every system. A port in that
// range could become the source port of any outgoing connection while one of our
// servers is down, and a client that dials it could even connect to itself. A
// server in cluster mode also uses the port 10,000 above its own for the bus,
// and these ports are below the range too.
const firstPort, ports = 12000, 10000

var (
	handedOutMu sync.Mutex
	handedOut   = map[int]bool{}
)

// FreePort returns a TCP port of 127.0.0.1 on which no process listens, and that
// it has not returned before. Another process may take the port at any time after
// the check.
func FreePort() (int, error) {
	handedOutMu.Lock()
	defer handedOutMu.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(ports) //nolint:gosec // not a secret
		if handedOut[port] || !free(port) {
			continue
		}
		handedOut[port] = true
		return port, nil
	}
	return 0, errors.New("process: no free port")
}

func free(port int) bool {
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return ln.Close() == nil
}
