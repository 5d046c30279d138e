package wire

import (
	"context"
	"net"
	"time"
)

// Feed is a connection on which a server sends more than the replies to commands, after SUBSCRIBE. One
// goroutine at a time sends, and one calls Next.
type Feed struct {
	net.Conn

	timeout time.Duration
	in      replies
}

// Feed makes a connection that the caller closes.
func (s *Server) Feed(ctx context.Context) (*Feed, error) {
	nc, _, err := s.connect(ctx)
	return &Feed{Conn: nc, timeout: s.config.Reply}, err
}

// Send sends a command on some channels, if there are any.
func (f *Feed) Send(name string, channels []string) error {
	if len(channels) == 0 {
		return nil
	}
	args := []any{name}
	for _, channel := range channels {
		args = append(args, channel)
	}
	_ = f.SetWriteDeadline(time.Now().Add(f.timeout))
	_, err := f.Write(appendCommand(nil, args))
	return err
}

// Next reads once, and returns the messages that are complete by then. They are valid until the next
// call.
func (f *Feed) Next() ([]any, error) { return f.in.next(f) }
