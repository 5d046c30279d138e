// Package entry defines the name and the value of an entry in Redis.
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

	// maxEncoded is the length of the longest readable name. A longer one becomes a hash.
	maxEncoded = 200

	// hashMark begins a name that is a hash. In readable names it is encoded, so that no
	// key reads like the hash of another.
	hashMark = "#"
)

// Name returns the Redis key of the entry of key: "latch:lock:user=42". If the name does not show
// key, kept is key, and the entry has to keep it. Otherwise kept is "".
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

// KeyOf is the inverse of Name. ok is false for a name that Name never returns. key is "" if the
// name does not show it.
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
	// A key has only one name, so another spelling of the key is not the name
	// of an entry.
	key = part + unescaped
	again, _ := Name(prefix, key)
	return key, again == name
}

// IsRecord reports whether the entry called name is a record of [lock.Locker.Once].
func IsRecord(prefix, name string) bool { return strings.HasPrefix(name, prefix+oncePart) }

// escape percent-encodes every byte that has a meaning for Redis (globs, hash tags) or for a
// terminal.
func escape(key string) string {
	n := 0
	for n < len(key) && plain[key[n]] {
		n++
	}
	if n == len(key) {
		return key // most keys
	}
	b := []byte(key[:n])
	for _, c := range []byte(key[n:]) {
		if plain[c] {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(b)
}

const hexDigits = "0123456789ABCDEF"

// plain is true for the bytes that are not encoded.
var plain = func() (is [256]bool) {
	const others = "._~=&/-"
	for c := range is {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		is[c] = letter || '0' <= c && c <= '9' || strings.IndexByte(others, byte(c)) >= 0
	}
	return is
}()
