package overload

import (
	"bufio"
	"context"
	"net"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// answer returns the time from began until a client without the Locker gets an answer. The client
// makes a new connection each time.
func (o Outage) answer(ctx context.Context, began time.Time) time.Duration {
	for ctx.Err() == nil {
		if ping(ctx, o.Addr) {
			return time.Since(began)
		}
		time.Sleep(time.Millisecond)
	}
	return Never
}

func ping(ctx context.Context, addr string) bool {
	const patience = 200 * time.Millisecond
	dialer := net.Dialer{Timeout: patience}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return false
	}
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && line == "+PONG\r\n"
}

// empty returns the time from began until no entry waits for its clean-up.
func empty(ctx context.Context, l *lock.Locker, began time.Time) time.Duration {
	for ctx.Err() == nil {
		if l.Stats().Backlog == 0 {
			return time.Since(began)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return Never
}
