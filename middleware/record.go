package middleware

import (
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// A record is what is kept of an answer:
//
//	1 byte    version
//	1 byte    flags
//	2 bytes   status
//	          body
//	          headers: per header its name and the number and texts of its
//	          values, each text behind its length, numbers as uvarints
//	4 bytes   length of the headers
//
// The body comes first because it is written to its place before the headers
// are complete. A record whose version is not known is not read at all.
const (
	recordVersion = 1
	recordPrefix  = 4
	recordSuffix  = 4
)

const (
	flagTombstone = 1 << iota // the answer was not kept; of the headers there is Location
	flagSized                 // the handler has set Content-Length

	knownFlags = flagTombstone | flagSized
)

// record is a record that was read. Its body is in the bytes it was read from.
type record struct {
	status    int
	tombstone bool
	sized     bool
	body      []byte
	headers   string
	values    int // of all headers
}

func newRecord(b []byte) []byte { return append(b, recordVersion, 0, 0, 0) }

// closeRecord completes a record that consists of the prefix and the body.
func closeRecord(b, headers []byte, status int, sized bool) []byte {
	if sized {
		b[1] |= flagSized
	}
	binary.BigEndian.PutUint16(b[2:], uint16(status)) //nolint:gosec // WriteHeader has checked it
	b = append(b, headers...)
	return binary.BigEndian.AppendUint32(b, uint32(len(headers))) //nolint:gosec // what net/http sends is far below 4 GiB
}

// maxLocation is the longest Location that outlives its answer.
const maxLocation = 8 << 10

// tombstone is the record of an answer that is not kept.
func (a *answer) tombstone() []byte {
	b := newRecord(nil)
	b[1] = flagTombstone
	var headers []byte
	if location := sentValues(a.room.values("Location"), a.http2); len(location) > 0 && len(location[0]) <= maxLocation {
		headers = appendHeader(nil, "Location", location[:1])
	}
	return closeRecord(b, headers, a.status, false)
}

func appendHeader(b []byte, name string, values []string) []byte {
	b = appendSized(b, name)
	b = binary.AppendUvarint(b, uint64(len(values)))
	for _, v := range values {
		b = appendSized(b, v)
	}
	return b
}

var errRecord = errors.New("middleware: the record of the answer cannot be read")

// readRecord checks all of b, so that nothing can go wrong once an answer has
// begun to be sent. It allocates no more than len(b) bytes.
func readRecord(b []byte) (record, error) {
	if len(b) < recordPrefix+recordSuffix || b[0] != recordVersion || b[1]&^knownFlags != 0 {
		return record{}, errRecord
	}
	rest := b[recordPrefix : len(b)-recordSuffix]
	size := binary.BigEndian.Uint32(b[len(b)-recordSuffix:])
	if uint64(size) > uint64(len(rest)) {
		return record{}, errRecord
	}
	split := len(rest) - int(size)
	r := record{
		status:    int(binary.BigEndian.Uint16(b[2:])),
		tombstone: b[1]&flagTombstone != 0,
		sized:     b[1]&flagSized != 0,
		body:      rest[:split],
		headers:   string(rest[split:]),
	}
	if r.status < 200 && !r.tombstone || r.status > 999 || len(r.body) > 0 && (r.tombstone || !bodyAllowed(r.status)) {
		return record{}, errRecord
	}
	return r, r.check()
}

// check reads all headers and counts their values.
func (r *record) check() error {
	for rest := r.headers; len(rest) > 0; {
		name, behind, ok := cutText(rest)
		n, behind, counted := cutNumber(behind)
		if !ok || !counted || strings.TrimPrefix(name, addedMark) == "" || n > len(behind) { // a value takes a byte at least
			return errRecord
		}
		for range n {
			if _, behind, ok = cutText(behind); !ok {
				return errRecord
			}
		}
		r.values += n
		rest = behind
	}
	return nil
}

// setHeader sets the headers that were kept, in place of what is there, and
// those without values to nothing; and those of more. What the handler had added
// to another middleware's values is added to what that has set by now.
func (r *record) setHeader(h http.Header, more ...[2]string) {
	all := make([]string, 0, r.values+len(more))
	for rest := r.headers; len(rest) > 0; {
		name, behind, _ := cutText(rest)
		n, behind, _ := cutNumber(behind)
		for range n {
			var v string
			v, behind, _ = cutText(behind)
			all = append(all, v)
		}
		values := slices.Clip(all[len(all)-n:])
		if plain, added := strings.CutPrefix(name, addedMark); added {
			name, values = plain, slices.Concat(h[plain], values)
		}
		h[name] = values
		rest = behind
	}
	for _, m := range more {
		all = append(all, m[1])
		h[m[0]] = slices.Clip(all[len(all)-1:])
	}
}

// cutText cuts a text off s.
func cutText(s string) (text, rest string, ok bool) {
	n, s, ok := cutNumber(s)
	if !ok || n > len(s) {
		return "", "", false
	}
	return s[:n], s[n:], true
}

// cutNumber cuts a uvarint that counts something in s off s.
func cutNumber(s string) (n int, rest string, ok bool) {
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
