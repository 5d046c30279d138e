// Package lenprefix writes strings behind their lengths: two lists of strings give the
// same bytes only if they are equal. Reading checks every length, because a record may be
// damaged. Numbers are uvarints.
package lenprefix

import "encoding/binary"

// Append appends the length of s, and s.
func Append(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Cut cuts a string with its length off the beginning of s.
func Cut(s string) (text, rest string, ok bool) {
	n, s, ok := CutNumber(s)
	if !ok || n > len(s) {
		return "", "", false
	}
	return s[:n], s[n:], true
}

// CutNumber cuts a number off the beginning of s. The number counts something in s, so ok is false
// if it is larger than the length of s.
func CutNumber(s string) (n int, rest string, ok bool) {
	v, size := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
	if size <= 0 || v > uint64(len(s)) {
		return 0, "", false
	}
	return int(v), s[size:], true //nolint:gosec // not more than len(s)
}
