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
	var v uint64
	for i := range min(len(s), 9) { // more would be more than an int can count
		v |= uint64(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			if v > uint64(len(s)) {
				return 0, "", false
			}
			return int(v), s[i+1:], true //nolint:gosec // not more than len(s)
		}
	}
	return 0, "", false
}
