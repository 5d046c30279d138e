package respproxy

import (
	"io"
	"strings"
)

// ErrProtocol is the error of the reader for bytes that are not RESP.
var ErrProtocol = errProtocol

// ReadReply reads one reply and returns the rest of text.
func ReadReply(text string) (raw string, push bool, rest string, err error) {
	src := strings.NewReader(text)
	r := newReader(src)
	b, push, err := r.reply()
	tail, _ := io.ReadAll(r.br)
	return string(b), push, string(tail), err
}

// ReadCommand reads one command and returns the rest of text.
func ReadCommand(text string) (args []string, raw, rest string, err error) {
	r := newReader(strings.NewReader(text))
	list, b, err := r.command()
	for _, a := range list {
		args = append(args, string(a))
	}
	tail, _ := io.ReadAll(r.br)
	return args, string(b), string(tail), err
}
