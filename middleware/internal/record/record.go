// Package record records the answer of a handler, so that repeats of its request get it again. It does not depend
// on a guard or a Locker. A record has
//
//	1 byte    version
//	1 byte    flags
//	2 bytes   status
//	          body
//	          headers: per header its name and the number and texts of its
//	          values, each text behind its length, numbers as uvarints
//	4 bytes   length of the headers
//
// The body comes first because it is already written to the record before the headers are
// complete. A record of an unknown version is not read.
package record

import (
	"encoding/binary"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Prefix begins a record, with room for flags and status. The body follows.
const Prefix = "\x01\x00\x00\x00"

const suffix = 4

// Flags of a record.
const (
	flagTombstone byte = 1 << iota // the answer was not kept; its only header is Location
	Sized                          // the handler has set Content-Length
	Pending                        // another answer will take its place
	Streamed                       // it was flushed before it was whole, so it had no length

	knownFlags = flagTombstone | Sized | Pending | Streamed
)

// AddedMark precedes the name of a header whose values are added to the values of outer middleware.
const AddedMark = ":"

// Record is a record that was read. Its body shares the bytes of the record.
type Record struct {
	Status                              int
	Tombstone, Sized, Pending, Streamed bool // as the flags
	Body                                []byte

	headers string
	values  int // of all headers
}

// Close completes a record with headers, written by AppendHeader.
func Close(b, headers []byte, status int, flags byte) []byte {
	b[1] = flags
	binary.BigEndian.PutUint16(b[2:], uint16(status)) //nolint:gosec // WriteHeader has checked it
	b = append(b, headers...)
	return binary.BigEndian.AppendUint32(b, uint32(len(headers))) //nolint:gosec // what net/http sends is far below 4 GiB
}

// maxLocation is the longest Location that outlives its answer.
const maxLocation = 8 << 10

// Tombstone returns the record of an answer that is not kept, with its Location.
func Tombstone(status int, location []string, flags byte) []byte {
	var headers []byte
	if len(location) > 0 && len(location[0]) <= maxLocation {
		headers = AppendHeader(nil, "Location", location[:1])
	}
	return Close(append([]byte(nil), Prefix...), headers, status, flagTombstone|flags)
}

// Unknown is the record of a request that may have had an effect, and has no answer: a tombstone without a status.
const Unknown = "\x01\x01\x00\x00\x00\x00\x00\x00"

// MayBeReplaced reports whether b may be replaced by a final answer: b is pending, is empty, or is [Unknown].
func MayBeReplaced(b []byte) (open bool, err error) {
	if len(b) == 0 || string(b) == Unknown {
		return true, nil
	}
	r, err := Read(b)
	return r.Pending, err
}

// AppendHeader appends a header to the headers of a record.
func AppendHeader(b []byte, name string, values []string) []byte {
	b = binary.AppendUvarint(AppendText(b, name), uint64(len(values)))
	for _, v := range values {
		b = AppendText(b, v)
	}
	return b
}

// AppendText appends the length of s, and s: two lists of texts give the same bytes only if they are equal.
func AppendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func cutText(s string) (text, rest string, ok bool) {
	n, s, ok := cutNumber(s)
	return s[:n], s[n:], ok
}

// cutNumber cuts a number of bytes or texts off the beginning of s. It is at most the length of rest: a text takes a
// byte.
func cutNumber(s string) (n int, rest string, ok bool) {
	v, size := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
	if size <= 0 || v > uint64(len(s[size:])) {
		return 0, "", false
	}
	return int(v), s[size:], true //nolint:gosec // not more than len(s)
}

var errUnreadable = errors.New("middleware: the record of the answer cannot be read")

// Read checks all of b, so that nothing can fail after an answer has begun to be sent. It allocates at most len(b)
// bytes.
func Read(b []byte) (Record, error) {
	if len(b) < len(Prefix)+suffix || b[0] != Prefix[0] || b[1]&^knownFlags != 0 {
		return Record{}, errUnreadable
	}
	rest := b[len(Prefix) : len(b)-suffix]
	size := binary.BigEndian.Uint32(b[len(b)-suffix:])
	if uint64(size) > uint64(len(rest)) {
		return Record{}, errUnreadable
	}
	split := len(rest) - int(size)
	r := Record{
		Status:    int(binary.BigEndian.Uint16(b[2:])),
		Tombstone: b[1]&flagTombstone != 0,
		Sized:     b[1]&Sized != 0,
		Pending:   b[1]&Pending != 0,
		Streamed:  b[1]&Streamed != 0,
		Body:      rest[:split],
		headers:   string(rest[split:]),
	}
	if r.Status < 200 && !r.Tombstone || r.Status > 999 || len(r.Body) > 0 && (r.Tombstone || !BodyAllowed(r.Status)) {
		return Record{}, errUnreadable
	}
	for rest := r.headers; len(rest) > 0; {
		name, behind, ok := cutText(rest)
		n, behind, counted := cutNumber(behind)
		if !ok || !counted || strings.TrimPrefix(name, AddedMark) == "" {
			return Record{}, errUnreadable
		}
		for range n {
			if _, behind, ok = cutText(behind); !ok {
				return Record{}, errUnreadable
			}
		}
		r.values += n
		rest = behind
	}
	return r, nil
}

// SetHeader sets the headers of the record in place of the values in h, and adds values that the handler had added to
// the values of outer middleware.
func (r *Record) SetHeader(h http.Header) {
	all := make([]string, 0, r.values)
	for rest := r.headers; len(rest) > 0; {
		name, behind, _ := cutText(rest)
		n, behind, _ := cutNumber(behind)
		for range n {
			var v string
			v, behind, _ = cutText(behind)
			all = append(all, v)
		}
		values := slices.Clip(all[len(all)-n:])
		if plain, added := strings.CutPrefix(name, AddedMark); added {
			name, values = plain, slices.Concat(h[plain], values)
		}
		h[name] = values
		rest = behind
	}
}

// ContentType returns the Content-Type of the record, "" if it has none.
func (r *Record) ContentType() string {
	h := make(http.Header)
	r.SetHeader(h)
	return h.Get("Content-Type")
}

// BodyAllowed reports whether an answer with this status can have a body.
func BodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// Replay sends rec, an answer, to r, marked with mark.
func Replay(w http.ResponseWriter, r *http.Request, rec Record, mark string) {
	h := w.Header()
	var outside http.Header // of outer middleware, for a page
	origin := r.Header.Get("Origin")
	if origin != "" {
		outside = h.Clone()
	}
	rec.SetHeader(h)
	h[ReplayedHeader] = []string{mark}
	if rec.Sized {
		h["Content-Length"] = []string{strconv.Itoa(len(rec.Body))}
	}
	if allowed := h["Access-Control-Allow-Origin"]; origin != "" && len(allowed) > 0 && allowed[0] != "*" && allowed[0] != origin {
		// The record is for pages of another origin.
		cors := func(name string, _ []string) bool { return strings.HasPrefix(name, "Access-Control-") }
		maps.DeleteFunc(h, cors)
		maps.DeleteFunc(outside, func(name string, _ []string) bool { return !cors(name, nil) })
		maps.Copy(h, outside)
	}
	w.WriteHeader(rec.Status)
	if rec.Streamed {
		_ = http.NewResponseController(w).Flush() // else net/http adds a length, which the first answer did not have
	}
	if len(rec.Body) > 0 {
		_, _ = w.Write(rec.Body) // fails only if the client has gone away
	}
}
