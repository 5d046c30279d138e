// Package entry defines the name and the value of an entry in Redis.
package entry

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
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

// An entry is one string, so that one plain command can claim it and so that
// it expires as a whole:
//
//	state     1 byte, 'H' held, 'S' settled, 'F' stub of a released one
//	version   1 byte, '1'
//	token     1 length byte, then the bytes
//	linger    13 decimal digits, ms
//	fence     16 decimal digits, 0 for none
//
// The scripts read and write this part. The rest is opaque to them:
//
//	attempt, fingerprint, owner, key     a uvarint; three texts after a uvarint length each
//	receipt                              the remaining bytes
//
// The key is empty unless the entry's name is a hash of it.
const (
	Held    = 'H'
	Settled = 'S'
	Stub    = 'F'
)

const (
	version = '1'

	lingerDigits = 13
	fenceDigits  = 16
)

// Append appends the entry that c asks for, with key in it, and without a fence.
func Append(b []byte, c *lock.Claim, key string) []byte {
	b = append(AppendPrefix(b, Held, c.Token), "00000000000000000000000000000"...)
	linger := Milliseconds(c.Linger)
	for i := len(b) - fenceDigits - 1; linger > 0; i-- {
		b[i] += byte(linger % 10)
		linger /= 10
	}
	b = binary.AppendUvarint(b, uint64(max(c.Attempt, 0)))
	b = append(binary.AppendUvarint(b, uint64(len(c.Fingerprint))), c.Fingerprint...)
	b = append(binary.AppendUvarint(b, uint64(len(c.Owner))), c.Owner...)
	return append(binary.AppendUvarint(b, uint64(len(key))), key...)
}

// AppendPrefix appends the first bytes of an entry of token in a state. A token has
// at most 255 bytes.
func AppendPrefix(b []byte, state byte, token string) []byte {
	b = append(b, state, version, byte(len(token))) //nolint:gosec // callers see to it
	return append(b, token...)
}

// Receipt returns the settled form of a held entry, with receipt.
func Receipt(held, receipt []byte) []byte {
	return slices.Concat([]byte{Settled}, held[1:], receipt)
}

// Milliseconds rounds up: half a millisecond of lease is one and never zero, which
// Redis would take for an error or for a deletion.
func Milliseconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Millisecond) + 1
}

// Value is a decoded entry.
type Value struct {
	State  byte
	Linger time.Duration
	entry  lock.Entry // with its Key if the name does not show it
}

var errNotOurs = errors.New("not an entry of this library")

// Decode reads an entry. It allocates no more bytes than raw has, even if raw has false lengths.
func Decode(raw string) (v Value, err error) {
	d := decoder{rest: raw}
	v.State = d.byte()
	if got := d.byte(); d.err == nil && got != version {
		return Value{}, fmt.Errorf("%w: format version %q", errNotOurs, got)
	}
	v.entry.Token = d.text(uint64(d.byte()))
	v.Linger = time.Duration(d.digits(lingerDigits, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	v.entry.Fence = d.digits(fenceDigits, math.MaxInt64)
	v.entry.Attempt = int(min(d.uvarint(), math.MaxInt32))
	v.entry.Fingerprint = bytesOf(d.text(d.uvarint()))
	v.entry.Owner = d.text(d.uvarint())
	v.entry.Key = d.text(d.uvarint())
	switch {
	case d.err != nil:
		return Value{}, d.err
	case v.State != Held && v.State != Settled && v.State != Stub:
		return Value{}, fmt.Errorf("%w: state %q", errNotOurs, v.State)
	case (v.State == Stub) != (v.entry.Token == ""), v.State != Settled && d.rest != "":
		return Value{}, errNotOurs
	}
	v.entry.Receipt = bytesOf(d.rest)
	return v, nil
}

// decoder reads from the front of rest until something is missing.
type decoder struct {
	rest string
	err  error
}

func (d *decoder) text(n uint64) string {
	if d.err != nil || n > uint64(len(d.rest)) {
		d.err = errNotOurs
		return ""
	}
	text := d.rest[:n]
	d.rest = d.rest[n:]
	return text
}

func (d *decoder) byte() byte {
	if text := d.text(1); text != "" {
		return text[0]
	}
	return 0
}

func (d *decoder) digits(n uint64, most int64) int64 {
	text := d.text(n)
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number > most || strings.ContainsAny(text, "+-") {
		d.err = errNotOurs
		return 0
	}
	return number
}

func (d *decoder) uvarint() uint64 {
	// ReadUvarint would read byte by byte, and Uvarint needs a slice. Neither looks
	// at more than ten bytes.
	n, size := binary.Uvarint([]byte(d.rest[:min(len(d.rest), binary.MaxVarintLen64)]))
	if d.err != nil || size <= 0 {
		d.err = errNotOurs
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func bytesOf(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
}

// Entry returns the entry as callers see it. left is the time to live of the Redis key in ms,
// -1 if it does not expire.
func (v *Value) Entry(left int64) lock.Entry {
	e := v.entry
	e.Left = max(time.Duration(left)*time.Millisecond, 0)
	switch {
	case v.State == Stub:
		return lock.Entry{}
	case v.State == Settled:
		e.State = lock.Settled
	case v.Linger > 0 && left >= 0 && e.Left <= v.Linger:
		e.State = lock.Abandoned
	default:
		e.State, e.Left = lock.Held, max(e.Left-v.Linger, 0)
	}
	return e
}
