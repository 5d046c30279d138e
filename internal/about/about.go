// Package about writes what a record says of the request that it is of, for those who
// have to decide what becomes of it: behind the process that has claimed it, in the
// owner of its entry, which stores keep as it is.
//
//	process \x1f began \x1f guard \x1f method \x1f path \x1f label
//
// began is seconds since 1970 in base 36. The label comes last, as it may have any byte.
package about

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// Request is what a record says of its request.
type Request struct {
	Guard  string
	Method string
	Path   string
	Label  string // what operators find it by; "" for nothing
	Began  time.Time
}

// Mark ends the process in an owner.
const Mark = '\x1f'

const (
	fields = 5

	// longest is how much is kept of a path, and of a label: a record is mostly small.
	longest = 128
	hashed  = 16 // hexadecimal digits of the rest
)

// AppendTo appends r to process, which is in b.
func (r *Request) AppendTo(b []byte) []byte {
	b = strconv.AppendInt(append(b, Mark), r.Began.Unix(), 36)
	for _, text := range [...]string{r.Guard, r.Method, Short(r.Path), Short(r.Label)} {
		b = append(append(b, Mark), text...)
	}
	return b
}

// Short is text as it is kept: one that is too long ends with a hash of it, so that two
// never become one.
func Short(text string) string {
	if len(text) <= longest {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return strings.ToValidUTF8(text[:longest-hashed-len("…")], "") + "…" + hex.EncodeToString(sum[:hashed/2])
}

// Split returns the process and what follows it, "" if nothing does.
func Split(owner string) (process, rest string) {
	if i := strings.IndexByte(owner, Mark); i >= 0 {
		return owner[:i], owner[i:]
	}
	return owner, ""
}

// Process is the process of an owner.
func Process(owner string) string {
	process, _ := Split(owner)
	return process
}

// Guard is the guard of the request that owner speaks of, "" if it speaks of none.
func Guard(owner string) string {
	_, rest := Split(owner)
	if rest == "" {
		return ""
	}
	_, rest, _ = strings.Cut(rest[1:], string(Mark))
	guard, _, _ := strings.Cut(rest, string(Mark))
	return guard
}

// Read returns what owner says of the request. ok is false if it says nothing that can
// be read.
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
