package pgproxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The codes with which a connection may begin, in place of a version.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssEncRequest = 80877104
)

// The messages that matter, by their first byte.
const (
	query         = 'Q'
	functionCall  = 'F'
	parse         = 'P'
	bind          = 'B'
	execute       = 'E'
	closing       = 'C'
	describe      = 'D'
	flush         = 'H'
	syncing       = 'S'
	readyForQuery = 'Z' // from the server
)

const maxMessage = 1 << 30

var errLength = errors.New("pgproxy: impossible length of a message")

// readMessage returns a message as it came: its type, its length, its body.
func readMessage(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(5)
	if err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	return readFull(r, 1+int64(binary.BigEndian.Uint32(head[1:])))
}

// readStartup returns a message without a type, and its code.
func readStartup(r *bufio.Reader) (raw []byte, code uint32, err error) {
	head, err := r.Peek(8)
	if err != nil {
		return nil, 0, fmt.Errorf("pgproxy: %w", err)
	}
	code = binary.BigEndian.Uint32(head[4:])
	raw, err = readFull(r, int64(binary.BigEndian.Uint32(head)))
	return raw, code, err
}

func readFull(r io.Reader, n int64) ([]byte, error) {
	if n < 5 || n > maxMessage {
		return nil, errLength
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(r, raw); err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	return raw, nil
}
