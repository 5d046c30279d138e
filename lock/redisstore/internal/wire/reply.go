package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// Error is an error reply of a server, or of a proxy before it.
type Error string

// Error returns the text of the reply, without its first byte.
func (e Error) Error() string { return string(e) }

// RedisError makes e a redis.Error, as the errors of go-redis are.
func (Error) RedisError() {}

const (
	maxBulk  = 512 << 20 // proto-max-bulk-len of a server, unless it was raised
	maxArray = 1 << 20
	maxDepth = 8

	// bufferSize is the size of a buffer that is kept. A larger one was needed once, and is dropped.
	bufferSize = 16 << 10

	// maxKept bounds the buffer for commands that a connection keeps.
	maxKept = 4 * bufferSize
)

var errProtocol = errors.New("not a reply of Redis")

// parse reads the reply at the beginning of data: a string, an int64, nil, a []any, or an [Error].
// n is its length. If data ends before the reply does, n is 0, and need is a length that data must
// have for the reply.
func parse(data []byte, depth int) (reply any, n, need int, err error) {
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		if len(data) > bufferSize {
			return nil, 0, 0, fmt.Errorf("%w: a line of more than %d bytes", errProtocol, bufferSize)
		}
		return nil, 0, len(data) + 1, nil
	}
	if end < 2 || data[end-1] != '\r' {
		return nil, 0, 0, fmt.Errorf("%w: %q", errProtocol, data[:min(end+1, 64)])
	}
	line, next := data[1:end-1], end+1
	switch kind := data[0]; kind {
	case '+':
		if string(line) == "OK" {
			return "OK", next, 0, nil // without an allocation
		}
		return string(line), next, 0, nil
	case '-':
		return Error(line), next, 0, nil
	case ':', '$', '*':
		size, err := strconv.ParseInt(string(line), 10, 64)
		switch {
		case err != nil, kind == '$' && (size < -1 || size > maxBulk), kind == '*' && (size < -1 || size > maxArray || depth == maxDepth):
			return nil, 0, 0, fmt.Errorf("%w: %q", errProtocol, data[:min(end+1, 64)])
		case kind == ':':
			return size, next, 0, nil
		case size < 0:
			return nil, next, 0, nil
		case kind == '*':
			return parseArray(data, next, int(size), depth)
		}
		last := next + int(size)
		if len(data) < last+2 {
			return nil, 0, last + 2, nil
		}
		if data[last] != '\r' || data[last+1] != '\n' {
			return nil, 0, 0, fmt.Errorf("%w: a string of another length than its own", errProtocol)
		}
		return string(data[next:last]), last + 2, 0, nil
	default:
		return nil, 0, 0, fmt.Errorf("%w: %q", errProtocol, data[:min(end+1, 64)])
	}
}

func parseArray(data []byte, next, size, depth int) (reply any, n, need int, err error) {
	all := make([]any, 0, min(size, 64))
	for range size {
		element, n, need, err := parse(data[next:], depth+1)
		if err != nil || n == 0 {
			return nil, 0, next + need, err
		}
		all, next = append(all, element), next+n
	}
	return all, next, 0, nil
}

// replies reads from a connection. A reply that a deadline has cut stays in the buffer, and its rest
// is read later.
type replies struct {
	data []byte // with the bytes that are not parsed yet
	read []any  // what next has returned, for its next call
	need int    // the length of data for the next reply
}

// next reads once, and returns the replies that are complete by then. They are valid until the next
// call.
func (r *replies) next(from io.Reader) ([]any, error) {
	clear(r.read)
	r.read = r.read[:0]
	if cap(r.data)-len(r.data) < 512 { // a forged length reserves no memory
		r.data = append(make([]byte, 0, max(bufferSize, 2*len(r.data))), r.data...)
	}
	n, err := from.Read(r.data[len(r.data):cap(r.data)])
	r.data = r.data[:len(r.data)+n]
	if len(r.data) < r.need {
		return nil, err
	}
	rest := r.data
	for r.need = 0; len(rest) > 0; {
		reply, length, need, failed := parse(rest, 0)
		if failed != nil {
			return r.read, failed
		}
		if length == 0 {
			r.need = need
			break
		}
		r.read, rest = append(r.read, reply), rest[length:]
	}
	if len(rest) == 0 && cap(r.data) > bufferSize {
		r.data = nil
	}
	r.data = r.data[:copy(r.data, rest)]
	return r.read, err
}

// appendCommand appends a command as the protocol writes it. The arguments are strings, byte slices
// and int64s. They do not escape, so that a command costs no allocation.
func appendCommand(out []byte, parts ...[]any) []byte {
	size := 0
	for _, args := range parts {
		size += len(args)
	}
	out = appendSize(out, '*', size)
	for _, args := range parts {
		for _, arg := range args {
			switch arg := arg.(type) {
			case string:
				out = append(appendSize(out, '$', len(arg)), arg...)
			case []byte:
				out = append(appendSize(out, '$', len(arg)), arg...)
			case int64:
				var digits [len("-9223372036854775808")]byte
				text := strconv.AppendInt(digits[:0], arg, 10)
				out = append(appendSize(out, '$', len(text)), text...)
			default:
				panic("redisstore: an argument of a type that a command has not") // of our own code
			}
			out = append(out, "\r\n"...)
		}
	}
	return out
}

func appendSize(out []byte, kind byte, size int) []byte {
	return append(strconv.AppendInt(append(out, kind), int64(size), 10), "\r\n"...)
}

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
