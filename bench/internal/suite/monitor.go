package suite

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
)

// monitor counts the commands that reach a server over the network while f
// runs, by name. INFO commandstats would count those too that scripts call, as
// if each were a round trip.
func (s *server) monitor(ctx context.Context, f func() error) (sent commands, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil {
		return nil, err
	}
	if ok, err := in.ReadString('\n'); err != nil || ok != "+OK\r\n" {
		return nil, fmt.Errorf("MONITOR: %q, %w", ok, err)
	}
	type outcome struct {
		sent commands
		err  error
	}
	counted := make(chan outcome, 1)
	go func() {
		sent, err := count(in)
		counted <- outcome{sent, err}
	}()
	if err := f(); err != nil {
		return nil, err
	}
	if err := s.client.Echo(ctx, endOfCount).Err(); err != nil {
		return nil, err
	}
	o := <-counted
	return o.sent, o.err
}

const endOfCount = "the benchmark has counted"

// handshake are the commands of new connections.
var handshake = map[string]bool{"hello": true, "client": true, "auth": true, "select": true, "ping": true}

// count reads lines such as
//
//	+1339518083.107412 [0 127.0.0.1:60866] "set" "user=42" "..."
//
// until the command that ends the count.
func count(in *bufio.Reader) (commands, error) {
	sent := commands{}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("MONITOR: %w", err)
		}
		_, rest, _ := strings.Cut(line, "[")
		from, command, ok := strings.Cut(rest, "] \"")
		if !ok {
			return nil, fmt.Errorf("MONITOR: %q", line)
		}
		name, _, _ := strings.Cut(command, `"`)
		name = strings.ToLower(name)
		switch {
		case name == "echo" && strings.Contains(command, endOfCount):
			return sent, nil
		case strings.HasSuffix(from, " lua"), handshake[name]:
		default:
			sent[name]++
		}
	}
}

func total(sent commands) (n int) {
	for _, times := range sent {
		n += times
	}
	return n
}
