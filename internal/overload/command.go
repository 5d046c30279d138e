package overload

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

var errNoCommand = errors.New("overload: not a command")

// appendCommand appends the next command of in to b, as it is: an array of bulk
// strings, which is all that Redis clients send.
func appendCommand(b []byte, in *bufio.Reader) ([]byte, error) {
	b, n, err := appendHead(b, in, '*')
	for ; n > 0 && err == nil; n-- {
		var size int
		if b, size, err = appendHead(b, in, '$'); err != nil {
			break
		}
		at := len(b)
		b = append(b, make([]byte, size+len("\r\n"))...)
		_, err = io.ReadFull(in, b[at:])
	}
	return b, err
}

// appendHead appends a line such as "*3\r\n", and returns its number.
func appendHead(b []byte, in *bufio.Reader, kind byte) ([]byte, int, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return b, 0, err
	}
	if len(line) < len("*0\r\n") || line[0] != kind {
		return b, 0, fmt.Errorf("%w: %q", errNoCommand, line)
	}
	n, err := strconv.Atoi(string(line[1 : len(line)-2]))
	if err != nil || n < 0 {
		return b, 0, fmt.Errorf("%w: %q", errNoCommand, line)
	}
	return append(b, line...), n, nil
}
