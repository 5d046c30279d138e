package day

import (
	"context"
	"net"
)

// Dialer dials a server of its own.
func Dialer() func(context.Context, string, string) (net.Conn, error) {
	s, _ := newServer(0)
	return func(context.Context, string, string) (net.Conn, error) { return s.dial() }
}
