// Package tickettext writes the tickets with which one process hands work over to another: the name
// of an entry and the token under which the entry waits, as one printable text.
//
// A ticket is no proof of anything but itself. The token in it decides in the store, and is too
// long to be guessed. The sum only detects a ticket that was cut or altered on its way.
package tickettext

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Kind says what a ticket is for. A ticket of one kind is refused where another is expected.
type Kind byte

// The kinds, the first byte of a ticket.
const (
	Lock   Kind = 'L'
	Answer Kind = 'A'
)

const (
	// MaxBytes is the length of the longest ticket.
	MaxBytes = 512

	// MaxName is the length of the longest name that always fits into a ticket, with a token of
	// up to 70 bytes.
	MaxName = 300

	sumBytes = 8
)

// Write returns the ticket of an entry. ok is false if it would be too long.
func Write(kind Kind, name, token string) (ticket string, ok bool) {
	if len(token) > 255 {
		return "", false
	}
	text := make([]byte, 0, 2+len(token)+len(name)+sumBytes)
	text = append(text, byte(kind), byte(len(token))) //nolint:gosec // it fits
	text = append(append(text, token...), name...)
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

// Read returns the name and the token of a ticket. The errors do not contain the ticket.
func Read(kind Kind, ticket string) (name, token string, err error) {
	if ticket == "" || len(ticket) > MaxBytes {
		return "", "", errLength
	}
	all, err := base64.RawURLEncoding.Strict().DecodeString(ticket)
	if err != nil || len(all) < 2+sumBytes || strings.ContainsAny(ticket, "\r\n") { // which package base64 skips
		return "", "", errForm
	}
	text, sum := all[:len(all)-sumBytes], all[len(all)-sumBytes:]
	if !bytes.Equal(sum, sumOf(text)) {
		return "", "", errForm
	}
	rest, n := text[2:], int(text[1])
	switch {
	case Kind(text[0]) != kind:
		return "", "", errKind
	case n == 0 || n >= len(rest):
		return "", "", errForm
	}
	return string(rest[n:]), string(rest[:n]), nil
}

func sumOf(text []byte) []byte {
	sum := sha256.Sum256(text)
	return sum[:sumBytes]
}
