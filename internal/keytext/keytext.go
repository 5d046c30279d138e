// Package keytext writes composed keys: the one place that decides how a name
// and its parts become one string, so that a route and a worker that compose
// the same parts always reach the same lock.
package keytext

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// MaxBytes is the longest key that a Locker takes, and the longest that a store
// has to.
const MaxBytes = 1024

// Marker is the first byte of a joined key ([Join]). It distinguishes "the two values
// 42 and 7" from one value that happens to read "42&7". It is the ASCII unit
// separator: no HTTP header can carry it, and the functions of package keyfunc
// refuse control characters wherever else they read.
const Marker = '\x1f'

const hexDigits = "0123456789ABCDEF"

// Join composes parts, at least one, into one marked text. It is injective,
// whatever the bytes and the number of the parts.
func Join(parts ...string) string {
	var b strings.Builder
	b.Grow(total(parts) + len(parts) + 1)
	b.WriteByte(Marker)
	writeParts(&b, parts)
	return b.String()
}

// Compose is the key of parts under name: "user=42", "order=7&eu", and "cron" if there are none.
// It is injective over name and parts. A single part that is marked counts as the parts it was
// joined from, so Compose(n, Join(p...)) == Compose(n, p...).
func Compose(name string, parts ...string) string {
	var b strings.Builder
	b.Grow(len(name) + total(parts) + len(parts) + 1)
	writeEscaped(&b, name)
	if len(parts) == 0 {
		return b.String()
	}
	b.WriteByte('=')
	if len(parts) == 1 && parts[0] != "" && parts[0][0] == Marker {
		b.WriteString(parts[0][1:])
		return b.String()
	}
	writeParts(&b, parts)
	return b.String()
}

// Name is the text before the first "=": the name that a key was given if it
// was composed with parts, "" if there is no "=".
func Name(key string) string {
	name, _, found := strings.Cut(key, "=")
	if !found {
		return ""
	}
	return name
}

// RecordPrefix begins the keys under which stores have run-once records.
const RecordPrefix = "once:"

// IsRecord reports whether key is one of them.
func IsRecord(key string) bool { return strings.HasPrefix(key, RecordPrefix) }

// Record is the key under which a store has the run-once record of key. It is a
// hash because key is a client's: it may be long, hostile, or nothing that should
// stand in a key listing.
func Record(key string) string {
	var room [1024]byte // both texts fit, as keys go, so that only the result is allocated
	sum := sha256.Sum256(append(room[:0], key...))
	return string(hex.AppendEncode(append(room[:0], RecordPrefix...), sum[:]))
}

// Digest stands for key in logs. It is the beginning of what Record makes of it.
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

// Slots are the keys of n permits for a composed key: "export=7#1" to "export=7#3". No composed
// key has a "#".
func Slots(key string, n int) []string {
	slots := make([]string, n)
	for i := range slots {
		slots[i] = key + "#" + strconv.Itoa(i+1)
	}
	return slots
}

func writeParts(b *strings.Builder, parts []string) {
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('&')
		}
		writeEscaped(b, p)
	}
}

// writeEscaped replaces the five bytes that have a meaning here. "~" escapes
// rather than "%" because a store may percent-encode the whole key once more,
// and "user=a%2526b" is nothing an operator wants to read.
func writeEscaped(b *strings.Builder, s string) {
	plain := 0 // where what needs no escape begins
	for i := range len(s) {
		switch c := s[i]; c {
		case '&', '=', '~', '#', Marker:
			b.WriteString(s[plain:i])
			plain = i + 1
			b.WriteByte('~')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	b.WriteString(s[plain:])
}

func total(parts []string) int {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	return n
}
