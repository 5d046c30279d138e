package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const noTwemproxy = `no nutcracker (twemproxy): this test needs a proxy that shares keys among servers.
Install it (apt-get install nutcracker, brew install twemproxy).`

// StartTwemproxy starts a twemproxy that shares keys among servers by a hash of their names, and returns
// its address. A command on several keys goes to the server of the first. It ends the connections of
// clients that send a command without a key, except PING, or a command that it does not know.
//
// It is killed when tb ends. Without nutcracker, tb is skipped; if CI=true it fails.
func StartTwemproxy(tb testing.TB, servers ...*Server) (addr string) {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Quick, "starts twemproxy")
	bin, err := exec.LookPath("nutcracker")
	if err != nil {
		bin, err = exec.LookPath("/usr/sbin/nutcracker")
	}
	if err != nil {
		testmain.Unavailable(tb, noTwemproxy, err)
	}
	p, err := process.New("twemproxy", process.Killed, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Remove)
	_, err = process.StartAtFreePort(func(port int) error {
		addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		statistics, err := process.FreePort()
		if err != nil {
			return err
		}
		file := filepath.Join(p.Dir, "nutcracker.yml")
		if err := os.WriteFile(file, []byte(twemproxyConfig(addr, servers)), 0o600); err != nil {
			return err
		}
		cmd := exec.CommandContext(context.Background(), bin, "-c", file, "-a", "127.0.0.1", "-s", strconv.Itoa(statistics)) //nolint:gosec // the binary is the developer's choice
		return p.Start(cmd, func(int) bool { return pongs(addr) })
	})
	if err != nil {
		tb.Fatal(err)
	}
	return addr
}

func twemproxyConfig(addr string, servers []*Server) string {
	var text strings.Builder
	fmt.Fprintf(&text, "shop:\n  listen: %s\n  hash: fnv1a_64\n  distribution: modula\n  redis: true\n  servers:\n", addr)
	for _, s := range servers {
		fmt.Fprintf(&text, "  - %s:1\n", s.Addr())
	}
	return text.String()
}

// pongs reports whether the server at addr answers PING.
func pongs(addr string) bool {
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	answer := make([]byte, 7)
	if _, err = conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err == nil {
		_, err = conn.Read(answer)
	}
	return err == nil && strings.HasPrefix(string(answer), "+PONG")
}
