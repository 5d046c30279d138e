package day

import (
	"context"
	"net"
	"time"
)

// Dialer dials a server of its own, which failOver has fail over to a replica without the last
// moments. It returns when the replica serves, with the keys that are free at the replica.
func Dialer() (dial func(context.Context, string, string) (net.Conn, error), failOver func(lost time.Duration) (forgotten []string)) {
	const gone = time.Second
	s, _ := newServer(0)
	dial = func(context.Context, string, string) (net.Conn, error) { return s.dial() }
	return dial, func(lost time.Duration) []string {
		forgotten := s.failOver(gone, lost)
		time.Sleep(gone)
		return forgotten
	}
}
