package record_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
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
	var flags byte
	if a.Sized {
		flags = record.Sized
	}
	return record.Close(append([]byte(record.Prefix), a.Body...), headers, a.Status, flags)
}

// A record that is pending, or only says that the outcome is unknown, makes room for the final answer, which stays.
func TestOpenRecords(t *testing.T) {
	t.Parallel()
	accepted := answer{Status: 202, Header: http.Header{"Location": {"/jobs/7"}}, Body: []byte{}}
	pending := write(accepted)
	pending[1] |= record.Pending
	require.Equal(t, accepted, must.Get(read(pending))(t))
	tombstone := record.Tombstone(202, nil, record.Pending)
	require.True(t, must.Get(record.Read([]byte(record.Unknown)))(t).Tombstone, "for versions that do not know it")
	require.NotEqual(t, record.Unknown, string(tombstone))
	for _, open := range [][]byte{nil, []byte(record.Unknown), pending, tombstone} {
		must.Yes(t)(record.MayBeReplaced(open))
	}
	for _, final := range [][]byte{write(accepted), record.Tombstone(202, nil, 0)} {
		must.No(t)(record.MayBeReplaced(final))
	}
	for _, unreadable := range [][]byte{{1}, []byte("\x00LS\x01sealed")} {
		_, err := record.MayBeReplaced(unreadable)
		require.Error(t, err)
	}
}

func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	good := write(answer{Status: 201, Header: http.Header{"Location": {"/orders/7"}}, Body: []byte("body")})
	must.Get(read(good))(t)
	change := func(f func(b []byte) []byte) []byte { return f(append([]byte(nil), good...)) }
	for name, b := range map[string][]byte{
		"nothing":           {},
		"older version":     change(func(b []byte) []byte { b[0] = 0; return b }),
		"newer version":     change(func(b []byte) []byte { b[0] = 2; return b }),
		"unknown flag":      change(func(b []byte) []byte { b[1] = 16; return b }),
		"status 0":          change(func(b []byte) []byte { b[2], b[3] = 0, 0; return b }),
		"status 103":        change(func(b []byte) []byte { b[2], b[3] = 0, 103; return b }),
		"204 with a body":   change(func(b []byte) []byte { b[2], b[3] = 0, 204; return b }),
		"tombstone, a body": change(func(b []byte) []byte { b[1] = 1; return b }),
		"headers too long":  change(func(b []byte) []byte { b[len(b)-4] = 0xff; return b }),
		"cut off":           good[:len(good)-1],
		"name too long":     []byte("\x01\x00\x00\xc8\x05Name\x00\x00\x00\x05"),
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

// FuzzRecord: no record from a store can do harm, and an accepted record survives being written again.
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
	return must.Get(read(write(r)))(t)
}
