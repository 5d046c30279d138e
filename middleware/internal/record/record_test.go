package record_test

import (
	"encoding/binary"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// answer is an answer in a record.
type answer struct {
	Status           int
	Tombstone, Sized bool
	Body             []byte
	Header           http.Header
}

// read reads a record as a replay does.
func read(b []byte) (answer, error) {
	r, err := record.Read(b)
	if err != nil {
		return answer{}, err
	}
	h := make(http.Header)
	r.SetHeader(h)
	return answer{r.Status, r.Tombstone, r.Sized, r.Body, h}, nil
}

// write writes the record of an answer that is no tombstone.
func write(a answer) []byte {
	var headers []byte
	for name, values := range a.Header {
		if !strings.HasPrefix(name, record.AddedMark) { // none that is sent has such a name
			headers = record.AppendHeader(headers, name, values)
		}
	}
	return record.Close(append(record.Open(nil), a.Body...), headers, a.Status, a.Sized)
}

func TestRecord(t *testing.T) {
	t.Parallel()
	for _, a := range []answer{
		{Status: 200, Header: http.Header{}, Body: []byte{}},
		{Status: 204, Header: http.Header{"Etag": {`"7"`}}, Body: []byte{}},
		{Status: 201, Sized: true, Header: http.Header{"A": {"1", "2", ""}, "B": {}, "C": {"ö\x00"}}, Body: []byte("body\x00\xff")},
		{Status: 999, Header: http.Header{}, Body: make([]byte, 1<<20)},
	} {
		got, err := read(write(a))
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
}

// TestUnknown: versions that do not know it read a tombstone.
func TestUnknown(t *testing.T) {
	t.Parallel()
	r, err := record.Read(record.Unknown())
	require.NoError(t, err)
	require.True(t, r.Tombstone)
	require.True(t, record.IsUnknown(record.Unknown()))
	for _, other := range [][]byte{nil, record.Tombstone(200, nil), record.Tombstone(0, []string{"/1"}), write(answer{Status: 200})} {
		require.False(t, record.IsUnknown(other))
	}
}

// A record that is pending, or says only that the outcome is not known, makes room for the final
// answer. The final one stays.
func TestOpenRecords(t *testing.T) {
	t.Parallel()
	accepted := answer{Status: 202, Header: http.Header{"Location": {"/jobs/7"}}, Body: []byte{}}
	pending := write(accepted)
	record.MarkPending(pending)
	got, err := read(pending)
	require.NoError(t, err)
	require.Equal(t, accepted, got)
	tombstone := record.Tombstone(202, nil)
	record.MarkPending(tombstone)
	for _, open := range [][]byte{nil, record.Unknown(), pending, tombstone} {
		is, err := record.MayBeReplaced(open)
		require.NoError(t, err)
		require.True(t, is)
	}
	for _, final := range [][]byte{write(accepted), record.Tombstone(202, nil)} {
		is, err := record.MayBeReplaced(final)
		require.NoError(t, err)
		require.False(t, is)
	}
	for _, unreadable := range [][]byte{{1}, []byte("\x00LS\x01sealed")} {
		_, err := record.MayBeReplaced(unreadable)
		require.Error(t, err)
	}
}

func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	good := write(answer{Status: 201, Header: http.Header{"Location": {"/orders/7"}}, Body: []byte("body")})
	_, err := read(good)
	require.NoError(t, err)
	change := func(f func(b []byte) []byte) []byte { return f(append([]byte(nil), good...)) }
	for name, b := range map[string][]byte{
		"nothing":           {},
		"only a version":    {1},
		"older version":     change(func(b []byte) []byte { b[0] = 0; return b }),
		"newer version":     change(func(b []byte) []byte { b[0] = 2; return b }),
		"unknown flag":      change(func(b []byte) []byte { b[1] = 16; return b }),
		"status 0":          change(func(b []byte) []byte { b[2], b[3] = 0, 0; return b }),
		"status 103":        change(func(b []byte) []byte { b[2], b[3] = 0, 103; return b }),
		"status 1000":       change(func(b []byte) []byte { binary.BigEndian.PutUint16(b[2:], 1000); return b }),
		"204 with a body":   change(func(b []byte) []byte { b[2], b[3] = 0, 204; return b }),
		"tombstone, a body": change(func(b []byte) []byte { b[1] = 1; return b }),
		"headers too long":  change(func(b []byte) []byte { b[len(b)-4] = 0xff; return b }),
		"cut off":           good[:len(good)-1],
		"name too long":     []byte("\x01\x00\x00\xc8\x05Name\x00\x00\x00\x05"),
		"name of 4 EiB":     []byte("\x01\x00\x00\xc8\xff\xff\xff\xff\xff\xff\xff\xff\x3f\x00\x00\x00\x09"),
		"number overflows":  []byte("\x01\x00\x00\xc8\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00\x0b"),
		"empty name":        []byte("\x01\x00\x00\xc8\x00\x00\x00\x00\x00\x02"),
		"a million values":  []byte("\x01\x00\x00\xc8\x01A\xc0\x84\x3d\x00\x00\x00\x05"),
		"value too long":    []byte("\x01\x00\x00\xc8\x01A\x01\x02v\x00\x00\x00\x05"),
	} {
		_, err := read(b)
		require.Error(t, err, name)
	}
}

// TestHostileLengths: the sizes in a record do not make Read reserve memory.
func TestHostileLengths(t *testing.T) {
	hostile := []byte("\x01\x00\x00\xc8\x01A\xff\xff\xff\xff\x7f\x00\x00\x00\x07")
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = read(hostile)
		}
	}).AllocedBytesPerOp()
	require.LessOrEqual(t, allocated, int64(64))
}

// FuzzRecord: no record from a store can do harm, and an accepted record
// survives being written again.
func FuzzRecord(f *testing.F) {
	f.Add(write(answer{Status: 201, Sized: true, Header: http.Header{"A": {"1", "2"}, "B": {}}, Body: []byte("body")}))
	f.Add([]byte("\x01\x01\x00\xc8\x08Location\x01\x02/7\x00\x00\x00\x0d"))
	f.Add([]byte("\x01\x00\x00\xc8\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := read(b)
		if err != nil {
			return
		}
		size := len(r.Body)
		for name, values := range r.Header {
			size += len(name)
			for _, v := range values {
				size += len(v)
			}
		}
		require.LessOrEqual(t, size, len(b))
		if r.Tombstone {
			require.Empty(t, r.Body)
			return
		}
		r = mustRead(t, r) // without headers that are never written
		again := mustRead(t, r)
		require.Equal(t, r.Status, again.Status)
		require.Equal(t, r.Sized, again.Sized)
		require.Equal(t, r.Body, again.Body)
		require.Len(t, again.Header, len(r.Header))
		for name, values := range r.Header {
			require.ElementsMatch(t, values, again.Header[name])
		}
	})
}

func mustRead(t *testing.T, r answer) answer {
	t.Helper()
	again, err := read(write(r))
	require.NoError(t, err)
	return again
}
