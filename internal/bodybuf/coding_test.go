package bodybuf_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
)

// compressed writes content through a compressor.
func compressed(t *testing.T, content string, open func(to io.Writer) (io.WriteCloser, error)) string {
	t.Helper()
	var b bytes.Buffer
	w := must.Get(open(&b))(t)
	must.Get(io.WriteString(w, content))(t)
	require.NoError(t, w.Close())
	return b.String()
}

func gzipped(level int, written time.Time) func(io.Writer) (io.WriteCloser, error) {
	return func(to io.Writer) (io.WriteCloser, error) {
		z, err := gzip.NewWriterLevel(to, level)
		if err == nil {
			z.ModTime = written
		}
		return z, err
	}
}

func zlibbed(level int) func(io.Writer) (io.WriteCloser, error) {
	return func(to io.Writer) (io.WriteCloser, error) { return zlib.NewWriterLevel(to, level) }
}

func deflated(to io.Writer) (io.WriteCloser, error) { return flate.NewWriter(to, 9) }

// TestContent: two compressions of one content are equal, and what is not compressed as it says is
// as it came. The handler gets the bytes of the client.
func TestContent(t *testing.T) {
	t.Parallel()
	order := `{"sku":"` + strings.Repeat("tea ", 100) + `"}`
	zip := compressed(t, order, gzipped(9, time.Time{}))
	z := compressed(t, order, zlibbed(9))
	raw := compressed(t, order, deflated)
	tests := []struct {
		name       string
		codings    []string
		body, want string
		malformed  bool // ErrMalformed
	}{
		{name: "gzip", codings: []string{"gzip"}, body: zip, want: order},
		{name: "gzip, stored at another time", codings: []string{"gzip"}, body: compressed(t, order, gzipped(0, time.Unix(1e9, 0))), want: order},
		{name: "gzip in capitals", codings: []string{"GZIP"}, body: zip, want: order},
		{name: "its alias", codings: []string{"x-gzip"}, body: zip, want: order},
		{name: "gzip of two members", codings: []string{"gzip"}, body: zip + zip, want: order + order},
		{name: "gzip of nothing", codings: []string{"gzip"}, body: compressed(t, "", gzipped(9, time.Time{})), want: ""},
		{name: "deflate", codings: []string{"deflate"}, body: z, want: order},
		{name: "deflate, stored", codings: []string{"deflate"}, body: compressed(t, order, zlibbed(0)), want: order},
		{name: "no coding", body: order, want: order},
		{name: "no coding, of a file that is compressed", body: zip, want: zip},
		{name: "none by name", codings: []string{"identity"}, body: zip, want: zip},
		{name: "another coding", codings: []string{"br"}, body: zip, want: zip},
		{name: "two codings", codings: []string{"gzip, gzip"}, body: zip, want: zip},
		{name: "two codings in two lines", codings: []string{"gzip", "gzip"}, body: zip, want: zip},
		{name: "decompressed outside", codings: []string{"gzip"}, body: order, want: order},
		{name: "deflate, decompressed outside", codings: []string{"deflate"}, body: order, want: order},
		{name: "deflate without zlib, as no standard has it", codings: []string{"deflate"}, body: raw, want: raw},
		{name: "one byte", codings: []string{"gzip"}, body: "\x1f", want: "\x1f"},
		{name: "none", codings: []string{"gzip"}, body: "", want: ""},
		{name: "gzip, cut off", codings: []string{"gzip"}, body: zip[:len(zip)-9], want: zip[:len(zip)-9], malformed: true},
		{name: "gzip, of its head", codings: []string{"gzip"}, body: zip[:3], want: zip[:3], malformed: true},
		{name: "gzip, and more", codings: []string{"gzip"}, body: zip + "x", want: zip + "x", malformed: true},
		{name: "gzip, changed", codings: []string{"gzip"}, body: zip[:len(zip)-4] + "size", want: zip[:len(zip)-4] + "size", malformed: true},
		{name: "deflate, and more", codings: []string{"deflate"}, body: z + "x", want: z + "x", malformed: true},
		{name: "deflate with a dictionary", codings: []string{"deflate"}, body: "\x78\xbb....", want: "\x78\xbb....", malformed: true},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			r, _ := request(strings.NewReader(tt.body), int64(len(tt.body)))
			r.Header["Content-Encoding"] = tt.codings
			for _, limit := range []int64{1 << 20, math.MaxInt64} {
				got, err := bodybuf.Content(r, limit)
				if tt.malformed {
					require.ErrorIs(t, err, bodybuf.ErrMalformed)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, tt.want, string(got))
				bodybuf.Rewind(r)
				require.NoError(t, iotest.TestReader(r.Body, []byte(tt.body)))
			}
		})
	}
	r, _ := request(nil, 0)
	r.Body = http.NoBody
	r.Header.Set("Content-Encoding", "gzip")
	require.Empty(t, must.Get(bodybuf.Content(r, 1))(t))
}

// TestContentIsLimited: a small body does not become a large one in memory.
func TestContentIsLimited(t *testing.T) { // not parallel: it measures
	const size = 10 << 20
	for coding, bomb := range map[string]string{
		"gzip":    compressed(t, strings.Repeat("x", size), gzipped(9, time.Time{})),
		"deflate": compressed(t, strings.Repeat("x", size), zlibbed(9)),
	} {
		require.Less(t, len(bomb), 1<<20)
		for _, limited := range []bool{false, true} {
			r, _ := request(strings.NewReader(bomb), int64(len(bomb)))
			r.Header.Set("Content-Encoding", coding)
			limit := int64(1 << 20)
			if limited {
				bodybuf.Limit(r, limit)
				limit = math.MaxInt64
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := bodybuf.Content(r, limit)
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, bodybuf.ErrTooLarge)
			require.ErrorContains(t, err, fmt.Sprintf("it may have %d bytes", 1<<20))
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(size*3/4))
			require.NoError(t, iotest.TestReader(r.Body, []byte(bomb)))
		}
	}
	// Content that was accepted under one limit is refused under a lower one, and the other way round.
	zip := compressed(t, strings.Repeat("x", 1000), gzipped(9, time.Time{}))
	r, _ := request(strings.NewReader(zip), int64(len(zip)))
	r.Header.Set("Content-Encoding", "gzip")
	for _, limit := range []int64{999, 1000, 999, 1001} {
		content, err := bodybuf.Content(r, limit)
		if limit < 1000 {
			require.ErrorIs(t, err, bodybuf.ErrTooLarge)
			continue
		}
		require.NoError(t, err)
		require.Len(t, content, 1000)
	}
}
