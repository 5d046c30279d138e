package respproxy

import (
	"bytes"
	"strconv"
)

// translation is the Action of Translate.
type translation struct {
	command func(args [][]byte) [][]byte
	reply   func(raw []byte) []byte
}

// Translate forwards the result of command for each command, name first, and
// answers with the result of reply for the server's reply. Both functions get a
// whole command or reply. Either may be nil. A connection whose replies to
// commands are translated must not subscribe over RESP2.
func Translate(command func(args [][]byte) [][]byte, reply func(raw []byte) []byte) Action {
	return Action{kind: translate, translation: &translation{command, reply}}
}

// forward returns the command that the server gets in place of raw.
func (t *translation) forward(args [][]byte, raw []byte) []byte {
	if t.command == nil {
		return raw
	}
	args = t.command(args)
	out := append([]byte{'*'}, strconv.Itoa(len(args))+"\r\n"...)
	for _, arg := range args {
		out = append(out, bulk('$', arg)...)
	}
	return out
}

// answer returns the reply that the client gets in place of raw.
func (t *translation) answer(raw []byte) []byte {
	if t.reply == nil {
		return raw
	}
	return t.reply(raw)
}

// bulk returns a value of one of the types that begin with their length.
func bulk(kind byte, value []byte) []byte {
	var b bytes.Buffer
	b.WriteByte(kind)
	b.WriteString(strconv.Itoa(len(value)))
	b.WriteString("\r\n")
	b.Write(value)
	b.WriteString("\r\n")
	return b.Bytes()
}
