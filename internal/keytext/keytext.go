// Package keytext writes composed keys. It alone decides how a name and its parts become one
// string, so that a route and a worker with the same parts reach the same lock.
package keytext

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// MaxBytes is the length of the longest key that a Locker accepts, and that a store must accept.
const MaxBytes = 1024

// Marker is the first byte of a joined key ([Join]). It distinguishes the two values 42 and 7 from
// the one value "42&7". It is the ASCII unit separator: no HTTP header can have it, and the
// functions of package keyfunc refuse control characters in values from elsewhere.
const Marker = '\x1f'

const hexDigits = "0123456789ABCDEF"

// usual is the room for a key of the usual length, so that only the result is allocated.
const usual = 128

// Join composes parts, at least one, into one marked text. It is injective for any bytes and any
// number of parts.
func Join(parts ...string) string {
	var room [usual]byte
	return string(appendParts(append(room[:0], Marker), parts))
}

// Compose returns the key of parts under name: "user=42", "order=7&eu", and "cron" if there are
// none. It is injective over name and parts. A single part that is marked counts as the parts it
// was joined from, so Compose(n, Join(p...)) == Compose(n, p...).
func Compose(name string, parts ...string) string {
	var room [usual]byte
	b := appendEscaped(room[:0], name)
	switch {
	case len(parts) == 0:
		return string(b)
	case len(parts) == 1 && parts[0] != "" && parts[0][0] == Marker:
		return string(append(append(b, '='), parts[0][1:]...))
	}
	return string(appendParts(append(b, '='), parts))
}

// Name returns the name of a key that was composed with parts, the text before the first "=". It is
// "" if there is no "=".
func Name(key string) string {
	name, _, found := strings.Cut(key, "=")
	if !found {
		return ""
	}
	return name
}

// RecordPrefix begins the keys under which stores have run-once records.
const RecordPrefix = "once:"

// IsRecord reports whether a store has a run-once record under key.
func IsRecord(key string) bool { return strings.HasPrefix(key, RecordPrefix) }

// Record returns the key under which a store has the run-once record of key. It is a hash, because
// a client chooses key: it may be long, hostile, or too private for a listing of keys.
func Record(key string) string {
	var room [1024]byte // the usual texts fit, so that only the result is allocated
	sum := sha256.Sum256(append(room[:0], key...))
	return string(hex.AppendEncode(append(room[:0], RecordPrefix...), sum[:]))
}

// Step returns the key under which a store has a step of a record. No key of a record has a "/".
func Step(record, name string) string { return record + "/" + name }

// CutStep returns the record and the name of a step. ok is false if key is not the key of a step.
func CutStep(key string) (record, name string, ok bool) {
	record, name, ok = strings.Cut(key, "/")
	return record, name, ok && IsRecord(key)
}

// Digest returns the text that stands for key in logs: the beginning of the hash in [Record].
func Digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}

// MaxSlots is the largest number of slots of a key, and SlotBytes the most bytes by which the
// name of a slot is longer than the key.
const (
	MaxSlots  = 64
	SlotBytes = 3
)

// Slots returns the keys of n permits for a composed key: "export=7#1" to "export=7#3". No composed
// key has a "#".
func Slots(key string, n int) []string {
	slots := make([]string, n)
	for i := range slots {
		slots[i] = key + "#" + strconv.Itoa(i+1)
	}
	return slots
}

func appendParts(b []byte, parts []string) []byte {
	for i, p := range parts {
		if i > 0 {
			b = append(b, '&')
		}
		b = appendEscaped(b, p)
	}
	return b
}

// appendEscaped appends s, with escapes for the five bytes that have a meaning in a key. They begin
// with "~", not "%", because a store may percent-encode the whole key: an operator should not have
// to read "user=a%2526b".
func appendEscaped(b []byte, s string) []byte {
	plain := 0 // the beginning of the text that needs no escape
	for i := range len(s) {
		switch c := s[i]; c {
		case '&', '=', '~', '#', Marker:
			b = append(append(b, s[plain:i]...), '~', hexDigits[c>>4], hexDigits[c&15])
			plain = i + 1
		}
	}
	return append(b, s[plain:]...)
}
