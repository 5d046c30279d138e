// Package entry says what an entry is in Redis: its name, and its value.
package entry

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"

	"github.com/httplatch/httplatch/internal/keytext"
)

const (
	lockPart = "lock:"
	oncePart = keytext.RecordPrefix

	// maxEncoded is how long a readable name may be. Beyond it, a hash is.
	maxEncoded = 200

	// hashMark begins a name that is a hash. It is encoded elsewhere, so that no
	// key reads like the hash of another.
	hashMark = "#"
)

// Name is the Redis key of the entry of key: "latch:lock:user=42". kept
// is key if that cannot be read from it and has to be kept in the entry, else "".
func Name(prefix, key string) (name, kept string) {
	part, rest := lockPart, key
	if after, found := strings.CutPrefix(key, oncePart); found {
		part, rest = oncePart, after
	}
	encoded := escape(rest)
	if len(encoded) > maxEncoded {
		sum := sha256.Sum256([]byte(key))
		return prefix + part + hashMark + hex.EncodeToString(sum[:]), key
	}
	return prefix + part + encoded, ""
}

// KeyOf is the inverse of Name. ok is false for what Name never returns; key is
// "" if it is to be read from the entry.
func KeyOf(prefix, name string) (key string, ok bool) {
	rest, found := strings.CutPrefix(name, prefix)
	if !found {
		return "", false
	}
	part := ""
	if after, found := strings.CutPrefix(rest, oncePart); found {
		part, rest = oncePart, after
	} else if rest, found = strings.CutPrefix(rest, lockPart); !found {
		return "", false
	}
	if hash, found := strings.CutPrefix(rest, hashMark); found {
		return "", len(hash) == hex.EncodedLen(sha256.Size)
	}
	unescaped, err := url.PathUnescape(rest)
	if err != nil {
		return "", false
	}
	// One key has one name: what reads like a key but is written otherwise is
	// not an entry that a claim would meet.
	key = part + unescaped
	again, _ := Name(prefix, key)
	return key, again == name
}

// IsRecord reports whether the entry called name is a record of [lock.Locker.Once].
func IsRecord(prefix, name string) bool { return strings.HasPrefix(name, prefix+oncePart) }

// escape percent-encodes all bytes but those that neither Redis (globs, hash
// tags) nor a terminal reads anything into.
func escape(key string) string {
	n := 0
	for n < len(key) && plain[key[n]] {
		n++
	}
	if n == len(key) {
		return key // as almost all are
	}
	var b strings.Builder
	b.Grow(len(key))
	for i := range len(key) {
		c := key[i]
		if plain[c] {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

const hexDigits = "0123456789ABCDEF"

// plain has the bytes that are not encoded.
var plain = func() (is [256]bool) {
	const others = "._~=&/-"
	for c := range is {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		is[c] = letter || '0' <= c && c <= '9' || strings.IndexByte(others, byte(c)) >= 0
	}
	return is
}()
