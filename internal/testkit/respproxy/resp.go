package respproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Bounds of one value, even if it has false lengths.
const (
	maxLine  = 64 << 10 // as Redis bounds inline commands
	maxValue = 64 << 20
	maxDepth = 32
	maxArgs  = 1 << 20 // as Redis bounds commands
)

var errProtocol = errors.New("respproxy: not RESP")

// reader reads RESP values and keeps their bytes unchanged.
type reader struct{ br *bufio.Reader }

// newReader returns a reader whose buffer has room for a usual pipeline.
func newReader(r io.Reader) *reader { return &reader{bufio.NewReaderSize(r, 16<<10)} }

// command reads one request. args is empty for a request that has no reply: an
// empty line or an empty array.
func (r *reader) command() (args [][]byte, raw []byte, err error) {
	line, err := r.line(nil)
	if err != nil {
		return nil, nil, err
	}
	if line[0] != '*' { // inline, as typed into telnet
		return bytes.Fields(line), line, nil
	}
	n, err := length(line)
	if err != nil {
		return nil, nil, err
	}
	if n > maxArgs {
		return nil, nil, fmt.Errorf("%w: %d arguments", errProtocol, n)
	}
	raw = line
	for range n {
		start := len(raw)
		if raw, err = r.line(raw); err != nil {
			return nil, nil, unexpected(err)
		}
		if raw[start] != '$' {
			return nil, nil, fmt.Errorf("%w: %q in a command", errProtocol, raw[start])
		}
		size, err := length(raw[start:])
		if err != nil || size < 0 {
			return nil, nil, fmt.Errorf("%w: bulk of a command", errProtocol)
		}
		body := len(raw)
		if raw, err = r.bulk(raw, size); err != nil {
			return nil, nil, err
		}
		args = append(args, raw[body:body+size:body+size])
	}
	return args, raw, nil
}

// reply reads one value. push reports that it answers no command.
func (r *reader) reply() (raw []byte, push bool, err error) {
	raw, kind, err := r.value(nil, 0)
	return raw, kind == '>', err
}

// value appends one value to raw. kind is the type of the value itself, not the
// type of attributes in front of it.
func (r *reader) value(raw []byte, depth int) (_ []byte, kind byte, err error) {
	if depth > maxDepth {
		return nil, 0, fmt.Errorf("%w: nested deeper than %d", errProtocol, maxDepth)
	}
	start := len(raw)
	if raw, err = r.line(raw); err != nil {
		if start > 0 {
			err = unexpected(err)
		}
		return nil, 0, err
	}
	line := raw[start:]
	kind = line[0]
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		return raw, kind, nil
	case '$', '=', '!':
		n, err := length(line)
		if err != nil || n < 0 {
			return raw, kind, err
		}
		raw, err = r.bulk(raw, n)
		return raw, kind, err
	case '*', '~', '>', '%', '|':
		n, err := length(line)
		if err != nil {
			return nil, 0, err
		}
		if kind == '%' || kind == '|' {
			n *= 2
		}
		for range n {
			if raw, _, err = r.value(raw, depth+1); err != nil {
				return nil, 0, err
			}
		}
		if kind == '|' { // an attribute describes the value that follows
			return r.value(raw, depth+1)
		}
		return raw, kind, nil
	}
	return nil, 0, fmt.Errorf("%w: type %q", errProtocol, kind)
}

// line appends one line with its end; it is never empty.
func (r *reader) line(raw []byte) ([]byte, error) {
	start := len(raw)
	for {
		part, err := r.br.ReadSlice('\n')
		if len(raw)-start+len(part) > maxLine || len(raw)+len(part) > maxValue {
			return nil, fmt.Errorf("%w: line too long", errProtocol)
		}
		raw = append(raw, part...)
		switch {
		case err == nil:
			return raw, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case len(raw) > start:
			return nil, unexpected(err)
		default:
			return nil, err
		}
	}
}

// bulk appends n bytes and the line end. Memory grows with the bytes that
// arrive, not with n.
func (r *reader) bulk(raw []byte, n int) ([]byte, error) {
	if n > maxValue-2-len(raw) {
		return nil, fmt.Errorf("%w: value too long", errProtocol)
	}
	for left := n + 2; left > 0; {
		step := min(left, 64<<10)
		start := len(raw)
		raw = append(raw, make([]byte, step)...)
		if _, err := io.ReadFull(r.br, raw[start:]); err != nil {
			return nil, unexpected(err)
		}
		left -= step
	}
	if !bytes.HasSuffix(raw, []byte("\r\n")) {
		return nil, fmt.Errorf("%w: bulk without its end", errProtocol)
	}
	return raw, nil
}

// length reads the number of a header line, -1 for null.
func length(line []byte) (int, error) {
	digits, ok := bytes.CutSuffix(line[1:], []byte("\r\n"))
	if ok && string(digits) == "-1" {
		return -1, nil
	}
	n, err := strconv.ParseUint(string(digits), 10, 31)
	if !ok || err != nil {
		return 0, fmt.Errorf("%w: length %q", errProtocol, line)
	}
	return int(n), nil
}

// unexpected converts io.EOF to io.ErrUnexpectedEOF, for an end inside a value.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
