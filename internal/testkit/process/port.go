package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports below every system's ephemeral range. In that range a port could be
// taken as the source port of any outgoing connection while one of our own
// servers is down, and a client that dials it could even connect to itself. The
// ports 10,000 above, where a server in cluster mode has its bus, are below that
// range too.
const firstPort, ports = 12000, 10000

var (
	handedOutMu sync.Mutex
	handedOut   = map[int]bool{}
)

// FreePort returns a TCP port that no process listens on at 127.0.0.1 and that it
// has not returned before. It is free when looked at, which is not a promise:
// other processes look too.
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
