package bodybuf_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errClose = errors.New("from Close")
	errGone  = errors.New("client gone")
)

// source is a client's body that counts how it is used.
type source struct {
	io.Reader
	read   int
	closed int
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.read += n
	return n, err
}

func (s *source) Close() error {
	s.closed++
	return errClose
}

func request(body io.Reader, length int64) (*http.Request, *source) {
	src := &source{Reader: body}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Body, r.ContentLength = src, length
	return r, src
}

func TestBytes(t *testing.T) {
	t.Parallel()
	readers := map[string]func(string) io.Reader{
		"whole":         func(s string) io.Reader { return strings.NewReader(s) },
		"end with data": func(s string) io.Reader { return iotest.DataErrReader(strings.NewReader(s)) },
		"halves":        func(s string) io.Reader { return iotest.HalfReader(strings.NewReader(s)) },
	}
	for _, size := range []int{0, 1, 511, 512, 513, 64 << 10, 64<<10 + 1, 300_000} {
		for name, reader := range readers {
			for _, length := range []int64{int64(size), -1} {
				parallel.Run(t, fmt.Sprint(name, " ", size, " ", length), func(t *testing.T) {
					body := strings.Repeat("x", size)
					r, src := request(reader(body), length)
					data := must.Get(bodybuf.Bytes(r, int64(size)))(t)
					require.Equal(t, body, string(data))
					require.Equal(t, length, r.ContentLength)
					require.NoError(t, iotest.TestReader(r.Body, []byte(body)))

					// Once more: on a copy, with another limit, after it was read.
					r = r.WithContext(context.Background())
					again := must.Get(bodybuf.Bytes(r, math.MaxInt64))(t)
					require.Equal(t, body, string(again))
					require.Equal(t, size, src.read)
					if size > 0 {
						require.Same(t, &data[0], &again[0])
					}
					require.NoError(t, iotest.TestReader(r.Body, []byte(body)))
				})
			}
		}
	}
}

func TestAnnouncedTooLargeIsNotRead(t *testing.T) {
	t.Parallel()
	r, src := request(strings.NewReader("12345678"), 8)
	require.ErrorIs(t, must.Err(bodybuf.Bytes(r, 7)), bodybuf.ErrTooLarge)
	require.Zero(t, src.read)
	require.Same(t, src, r.Body)
}

// A lying Content-Length must neither be believed nor paid for in advance.
func TestAnnouncedIsOnlyAClaim(t *testing.T) {
	t.Parallel()
	r, _ := request(strings.NewReader("12345678"), 3)
	data := must.Get(bodybuf.Bytes(r, 8))(t)
	require.Equal(t, "12345678", string(data))

	r, _ = request(strings.NewReader("12345678"), 1<<40)
	data = must.Get(bodybuf.Bytes(r, math.MaxInt64))(t)
	require.Equal(t, "12345678", string(data))
	require.LessOrEqual(t, cap(data), 128<<10)
}

// TestLimit: the limit of a guard counts for all that ask for the body later,
// on copies of the request too, and nothing is read to set it.
func TestLimit(t *testing.T) {
	t.Parallel()
	for _, length := range []int64{8, -1} {
		for limit, fits := range map[int64]bool{1: false, 7: false, 8: true, 1 << 20: true} {
			for _, asked := range []int64{1, 8, 100} {
				r, src := request(strings.NewReader("12345678"), length)
				bodybuf.Limit(r, 3) // of a guard further out
				bodybuf.Limit(r, limit)
				require.Zero(t, src.read)
				data, err := bodybuf.Bytes(r.WithContext(context.Background()), asked)
				if !fits {
					require.ErrorIs(t, err, bodybuf.ErrTooLarge)
					require.ErrorContains(t, err, fmt.Sprintf("it may have %d bytes", limit))
					if length > 0 {
						require.Zero(t, src.read)
					}
				} else {
					require.NoError(t, err)
					require.Equal(t, "12345678", string(data))
				}
				require.NoError(t, iotest.TestReader(r.Body, []byte("12345678")))
			}
		}
	}
	for _, none := range []io.ReadCloser{nil, http.NoBody} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Body = none
		bodybuf.Limit(r, 1)
		require.Equal(t, none, r.Body)
	}
}

func TestTooLargeIsPutBack(t *testing.T) {
	t.Parallel()
	r, src := request(strings.NewReader("12345678"), -1)
	for _, limit := range []int64{0, 3, 3, 7, 1} {
		_, err := bodybuf.Bytes(r, limit)
		require.ErrorIs(t, err, bodybuf.ErrTooLarge)
		require.ErrorContains(t, err, fmt.Sprintf("it may have %d bytes", limit))
		require.LessOrEqual(t, src.read, 8)
	}
	require.Equal(t, "12345678", string(must.Get(bodybuf.Bytes(r, 8))(t)))
	require.NoError(t, iotest.TestReader(r.Body, []byte("12345678")))

	// Read to its end in spite of the refusal, the body is complete for its
	// reader, and gone for the next one: half of it would be worse than none.
	r, src = request(iotest.OneByteReader(strings.NewReader("12345678")), -1)
	require.ErrorIs(t, must.Err(bodybuf.Bytes(r, 3)), bodybuf.ErrTooLarge)
	require.Equal(t, 4, src.read)
	require.NoError(t, iotest.TestReader(r.Body, []byte("12345678")))
	require.ErrorIs(t, must.Err(bodybuf.Bytes(r, 100)), bodybuf.ErrTooLarge)
}

// A reader in the middle of a body that was not kept goes on where it was.
func TestTooLargeIsNotRepeated(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("1234567890", 100)
	r, src := request(strings.NewReader(body), -1)
	require.ErrorIs(t, must.Err(bodybuf.Bytes(r, 3)), bodybuf.ErrTooLarge)
	require.Equal(t, 4, src.read)
	begun := make([]byte, 500)
	must.Get(io.ReadFull(r.Body, begun))(t)
	require.ErrorIs(t, must.Err(bodybuf.Bytes(r, 10_000)), bodybuf.ErrTooLarge)
	require.Equal(t, body, string(begun)+string(must.Get(io.ReadAll(r.Body))(t)))
}

func TestReadErrorIsPutBack(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{errGone, io.ErrUnexpectedEOF, fmt.Errorf("wrapped: %w", io.EOF)} {
		r, _ := request(io.MultiReader(strings.NewReader("1234"), iotest.ErrReader(failure)), 8)
		for range 2 {
			data, err := bodybuf.Bytes(r, 100)
			require.ErrorIs(t, err, failure)
			require.NotErrorIs(t, err, bodybuf.ErrTooLarge)
			require.Nil(t, data)
		}
		data, err := io.ReadAll(r.Body)
		require.Equal(t, failure, err)
		require.Equal(t, "1234", string(data))
	}
}

func TestOuterMaxBytesReader(t *testing.T) {
	t.Parallel()
	r, _ := request(strings.NewReader("12345678"), -1)
	r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 5)
	_, err := bodybuf.Bytes(r, 100)
	require.ErrorIs(t, err, bodybuf.ErrTooLarge)
	var outer *http.MaxBytesError
	require.ErrorAs(t, err, &outer)

	// The handler meets the same limit.
	data, err := io.ReadAll(r.Body)
	require.ErrorAs(t, err, &outer)
	require.Equal(t, "12345", string(data))
}

func TestClose(t *testing.T) {
	t.Parallel()
	r, src := request(strings.NewReader("12345678"), 8)
	must.Get(bodybuf.Bytes(r, 8))(t)
	require.Zero(t, src.closed)
	require.Equal(t, errClose, r.Body.Close())
	require.NoError(t, r.Body.Close())
	require.Equal(t, 1, src.closed)
	require.ErrorIs(t, must.Err(r.Body.Read(make([]byte, 1))), http.ErrBodyReadAfterClose)

	// What was kept can still be had; the body stays closed.
	require.Equal(t, "12345678", string(must.Get(bodybuf.Bytes(r, 8))(t)))
	require.ErrorIs(t, must.Err(r.Body.Read(make([]byte, 1))), http.ErrBodyReadAfterClose)
}

// An http.Transport that forwards the request closes the body while it may still be read.
func TestCloseBesideRead(t *testing.T) {
	t.Parallel()
	r, src := request(strings.NewReader(strings.Repeat("x", 100_000)), -1)
	must.Get(bodybuf.Bytes(r, 100_000))(t)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { _ = r.Body.Close() })
	}
	wg.Go(func() {
		_, err := io.Copy(io.Discard, r.Body)
		if err != nil && !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Error(err)
		}
	})
	wg.Wait()
	require.Equal(t, 1, src.closed)
}

// TestVerdict: a body is checked once, by whichever copy of its request, and after Rewind.
func TestVerdict(t *testing.T) {
	t.Parallel()
	wrong, calls := errors.New("wrong"), 0
	check := func([]byte) error { calls++; return wrong }
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("text"))
	data := must.Get(bodybuf.Bytes(r, 10))(t)
	clone := *r
	require.Equal(t, wrong, bodybuf.Verdict(r, data, check))
	require.Equal(t, wrong, bodybuf.Verdict(&clone, data, check))
	_, _ = io.Copy(io.Discard, r.Body)
	bodybuf.Rewind(r)
	require.Equal(t, wrong, bodybuf.Verdict(r, data, check))
	require.Equal(t, 1, calls)

	r.Body = io.NopCloser(strings.NewReader("other"))
	data = must.Get(bodybuf.Bytes(r, 10))(t)
	require.Equal(t, wrong, bodybuf.Verdict(r, data, check))
	require.Equal(t, 2, calls, "another body")
}
