// Package requestinfo writes and reads the description of a request in its record. An
// operator needs it to decide on the entry. It follows the process in the owner of the
// entry, which stores keep unchanged.
//
//	process \x1f began \x1f guard \x1f method \x1f path \x1f label
//
// began is seconds since 1970 in base 36. The label comes last, as it may have any byte.
package requestinfo

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// Request describes the request of a record.
type Request struct {
	Guard  string
	Method string
	Path   string
	Label  string // finds the record on the operator's page; "" for none
	Began  time.Time
}

// Mark separates the process from the description, and the fields of that.
const Mark = '\x1f'

const (
	fields = 5

	// longest bounds the bytes of a method, a path and a label: records are mostly small.
	longest = 128
	hashed  = 16 // hexadecimal digits of the rest
)

// AppendTo appends r to process, which is in b.
func (r *Request) AppendTo(b []byte) []byte {
	b = strconv.AppendInt(append(b, Mark), r.Began.Unix(), 36)
	for _, text := range [...]string{r.Guard, Short(r.Method), Short(r.Path), Short(r.Label)} {
		b = append(append(b, Mark), text...)
	}
	return b
}

// Short returns text as the record keeps it: beyond 128 bytes, the rest is replaced by a hash of
// the whole, so that two texts stay different.
func Short(text string) string {
	if len(text) <= longest {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return strings.ToValidUTF8(text[:longest-hashed-len("…")], "") + "…" + hex.EncodeToString(sum[:hashed/2])
}

// Split cuts owner behind the process. rest is "" without a description.
func Split(owner string) (process, rest string) {
	if i := strings.IndexByte(owner, Mark); i >= 0 {
		return owner[:i], owner[i:]
	}
	return owner, ""
}

// Process returns the process of an owner.
func Process(owner string) string {
	process, _ := Split(owner)
	return process
}

// Guard returns the name of the request's guard, "" without a description.
func Guard(owner string) string {
	_, rest := Split(owner)
	if rest == "" {
		return ""
	}
	_, rest, _ = strings.Cut(rest[1:], string(Mark))
	guard, _, _ := strings.Cut(rest, string(Mark))
	return guard
}

// Read returns the description in owner. ok is false if there is none, or it cannot be read.
func Read(owner string) (r Request, ok bool) {
	_, rest := Split(owner)
	if rest == "" {
		return Request{}, false
	}
	f := strings.SplitN(rest[1:], string(Mark), fields)
	began, err := strconv.ParseInt(f[0], 36, 64)
	if len(f) != fields || err != nil {
		return Request{}, false
	}
	return Request{Began: time.Unix(began, 0), Guard: f[1], Method: f[2], Path: f[3], Label: f[4]}, true
}
