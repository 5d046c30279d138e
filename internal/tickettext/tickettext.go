// Package tickettext writes the tickets with which one process hands work over to another: the name
// of an entry, the token under which the entry waits, and for how long, as one printable text.
//
// A ticket is no proof of anything but itself. The token in it decides in the store, and is too
// long to be guessed. The sum only detects a ticket that was cut or altered on its way.
package tickettext

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Kind says what a ticket is for. A ticket of one kind is refused where another is expected.
type Kind byte

// The kinds, the first byte of a ticket.
const (
	Lock   Kind = 'L'
	Answer Kind = 'A'
)

// Ticket is the content of a ticket.
type Ticket struct {
	Name, Token string // of the entry

	// Until is when the entry ends by itself, in seconds. If it is missing before then, something
	// else has ended it, or it was never in the store that is asked. It is zero if no run has the
	// token: its bearer claims the key.
	Until time.Time
}

const (
	// MaxBytes is the length of the longest ticket.
	MaxBytes = 512

	// MaxName is the length of the longest name that always fits into a ticket, with a token of
	// up to 70 bytes.
	MaxName = 300

	head     = 6 // kind, length of the token, end
	sumBytes = 8
)

// Write returns the text of t. ok is false if it would be too long.
func (t *Ticket) Write(kind Kind) (ticket string, ok bool) {
	if len(t.Token) > 255 {
		return "", false
	}
	text := make([]byte, 0, head+len(t.Token)+len(t.Name)+sumBytes)
	text = append(text, byte(kind), byte(len(t.Token))) //nolint:gosec // it fits
	text = binary.BigEndian.AppendUint32(text, uint32(min(max(t.Until.Unix(), 0), math.MaxUint32)))
	text = append(append(text, t.Token...), t.Name...)
	text = append(text, sumOf(text)...)
	ticket = base64.RawURLEncoding.EncodeToString(text)
	return ticket, len(ticket) <= MaxBytes
}

// The errors of [Read].
var (
	errLength = fmt.Errorf("it is empty, or longer than %d bytes", MaxBytes)
	errForm   = errors.New("it was cut or altered, or never was one")
	errKind   = errors.New("it is for something else: a lock's ticket is resumed, and an answer's is finished")
)

// Read returns the content of a ticket. The errors do not contain the ticket.
func Read(kind Kind, ticket string) (t Ticket, err error) {
	if ticket == "" || len(ticket) > MaxBytes {
		return t, errLength
	}
	all, err := base64.RawURLEncoding.Strict().DecodeString(ticket)
	if err != nil || len(all) < head+sumBytes || strings.ContainsAny(ticket, "\r\n") { // which package base64 skips
		return t, errForm
	}
	text, sum := all[:len(all)-sumBytes], all[len(all)-sumBytes:]
	if !bytes.Equal(sum, sumOf(text)) {
		return t, errForm
	}
	rest, n := text[head:], int(text[1])
	switch {
	case Kind(text[0]) != kind:
		return t, errKind
	case n == 0 || n >= len(rest):
		return t, errForm
	}
	return Ticket{string(rest[n:]), string(rest[:n]), time.Unix(int64(binary.BigEndian.Uint32(text[2:])), 0)}, nil
}

func sumOf(text []byte) []byte {
	sum := sha256.Sum256(text)
	return sum[:sumBytes]
}
