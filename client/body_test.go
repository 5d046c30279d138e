package client_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
)

// cutBody is a base that reads a number of bytes of the body of each attempt, and fails. After the
// last number it answers.
type cutBody struct {
	cuts []int
	got  []string
}

func (c *cutBody) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	if len(c.got) < len(c.cuts) {
		part, err := io.ReadAll(io.LimitReader(r.Body, int64(c.cuts[len(c.got)])))
		c.got = append(c.got, string(part))
		if err != nil {
			return nil, err
		}
		return nil, errors.New("the connection broke")
	}
	whole, err := io.ReadAll(r.Body)
	c.got = append(c.got, string(whole))
	if err != nil {
		return nil, err
	}
	resp := created()
	resp.Request = r
	return resp, nil
}

// TestBodiesAreKept: an attempt gets the whole body, wherever the one before ended, and
// the source is read and closed once.
func TestBodiesAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, cuts := range [][]int{{0}, {3}, {100}, {3, 1, 5}, {0, 0, 7}, {7, 100, 0}} {
			for _, length := range []int64{-1, 0, 10} {
				source := &watched{Reader: plainReader{strings.NewReader("0123456789")}}
				b := &cutBody{cuts: cuts}
				req := request(t.Context(), t, http.MethodPost, "")
				req.Body, req.ContentLength = source, length
				resp, err := client.Transport(b).RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, len(cuts)+1, client.Attempts(resp))
				require.Equal(t, "0123456789", b.got[len(cuts)])
				for i, n := range cuts {
					require.Equal(t, "0123456789"[:min(n, 10)], b.got[i])
				}
				require.Equal(t, 1, source.closed)
			}
		}
	})
}

// TestBodiesThatCannotBeHadAgain are sent once, whole.
func TestBodiesThatCannotBeHadAgain(t *testing.T) {
	t.Parallel()
	failure := errors.New("the disk failed")
	tests := []struct {
		name string
		set  func(*http.Request)
		opts []client.Option
		want string
		err  string
	}{
		{"over the limit", nil, []client.Option{client.WithBodyLimit(9)}, "0123456789", "the connection broke"},
		{"no limit", nil, []client.Option{client.WithBodyLimit(0)}, "0123456789", "the connection broke"},
		{"over the limit, as announced", func(r *http.Request) { r.ContentLength = 10 }, []client.Option{client.WithBodyLimit(9)}, "0123456789", "the connection broke"},
		{"GetBody fails", func(r *http.Request) { r.GetBody = func() (io.ReadCloser, error) { return nil, failure } }, nil, "0123456789", "the connection broke"},
		{"the source fails", func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("012"), failing{failure}))
		}, nil, "012", "the disk failed"},
	}
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range tests {
			b := &cutBody{cuts: []int{100}}
			req := request(t.Context(), t, http.MethodPost, "")
			req.Body, req.ContentLength = io.NopCloser(plainReader{strings.NewReader("0123456789")}), -1
			if tt.set != nil {
				tt.set(req)
			}
			_, err := client.Transport(b, tt.opts...).RoundTrip(req)
			require.ErrorContains(t, err, tt.err, tt.name)
			require.Equal(t, []string{tt.want}, b.got, tt.name)
		}
	})
}

// TestBodyLimitIsExact: as many bytes as the limit are kept.
func TestBodyLimitIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &cutBody{cuts: []int{100}}
		req := request(t.Context(), t, http.MethodPost, "")
		req.Body, req.ContentLength = io.NopCloser(plainReader{strings.NewReader("0123456789")}), -1
		_, err := client.Transport(b, client.WithBodyLimit(10)).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, []string{"0123456789", "0123456789"}, b.got)
	})
}

// A body over the limit is sent again if its length was not known, and at most limit bytes of it
// were read.
func TestBodyOverTheLimitOfWhichLittleWasRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			length   int64
			read     int
			attempts int
		}{{-1, 5, 2}, {-1, 6, 1}, {10, 0, 1}} {
			b := &cutBody{cuts: []int{tt.read}}
			req := request(t.Context(), t, http.MethodPost, "")
			req.Body, req.ContentLength = io.NopCloser(plainReader{strings.NewReader("0123456789")}), tt.length
			_, err := client.Transport(b, client.WithBodyLimit(5)).RoundTrip(req)
			require.Equal(t, tt.attempts == 1, err != nil, "%+v: %v", tt, err)
			require.Len(t, b.got, tt.attempts, "%+v", tt)
		}
	})
}

// TestRefusalOfABodyThatCannotBeHadAgainIsReturned, with its own body.
func TestRefusalOfABodyThatCannotBeHadAgainIsReturned(t *testing.T) {
	t.Parallel()
	b := always(answer(503, "busy"))
	req := request(t.Context(), t, http.MethodPost, "")
	req.Body, req.ContentLength = io.NopCloser(plainReader{strings.NewReader("0123456789")}), -1
	resp, err := client.Transport(b, client.WithBodyLimit(5)).RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, "busy", bodyOf(t, resp))
	require.Len(t, b.sent, 1)
}

// slowBase returns from the first attempt while its body is still being read, as
// net/http may.
type slowBase struct {
	late    sync.WaitGroup
	lateErr error
	tries   atomic.Int64
	got     string
}

func (s *slowBase) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.tries.Add(1) == 1 {
		s.late.Go(func() { _, s.lateErr = io.ReadAll(r.Body) })
		synctest.Wait() // for the source
		return answer(503, "")(), nil
	}
	body, err := io.ReadAll(r.Body)
	s.got = string(body)
	_ = r.Body.Close()
	if err != nil {
		return nil, err
	}
	return created(), nil
}

// TestBodyOfAnAttemptThatIsOver: bytes that an ended attempt still reads from the source are not
// lost to the next attempt. If they are more than the limit, the next attempt fails, and never
// sends a body with a hole.
func TestBodyOfAnAttemptThatIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for limit, fails := range map[int64]bool{10: false, 2: true} {
			source, feed := io.Pipe()
			var feeding sync.WaitGroup
			feeding.Go(func() {
				for _, part := range []string{"012", "345", "678", "9"} {
					time.Sleep(200 * time.Millisecond)
					_, _ = io.WriteString(feed, part)
				}
				feed.Close()
			})
			b := &slowBase{}
			req := request(t.Context(), t, http.MethodPost, "")
			req.Body, req.ContentLength = source, -1
			_, err := client.Transport(b, client.WithBodyLimit(limit)).RoundTrip(req)
			if fails {
				require.ErrorContains(t, err, "attempt")
				require.Empty(t, b.got)
			} else {
				require.NoError(t, err)
				require.Equal(t, "0123456789", b.got)
			}
			require.EqualValues(t, 2, b.tries.Load())
			feeding.Wait()
			b.late.Wait()
			require.ErrorContains(t, b.lateErr, "over", "an attempt that is over reads no more")
		}
	})
}

// TestStreamsBothWays: the body is not read ahead of the base, so that its source can
// wait for the answer.
func TestStreamsBothWays(t *testing.T) {
	t.Parallel()
	source, feed := io.Pipe()
	answered := make(chan struct{})
	var feeding, reading sync.WaitGroup
	feeding.Go(func() {
		_, _ = io.WriteString(feed, "first ")
		<-answered
		_, _ = io.WriteString(feed, "second")
		feed.Close()
	})
	var got string
	b := roundTripper(func(r *http.Request) (*http.Response, error) {
		start := make([]byte, 6)
		_, err := io.ReadFull(r.Body, start)
		reading.Go(func() {
			rest, _ := io.ReadAll(r.Body)
			got = string(start) + string(rest)
			_ = r.Body.Close()
		})
		return created(), err
	})
	req := request(t.Context(), t, http.MethodPost, "")
	req.Body, req.ContentLength = source, -1
	resp, err := client.Transport(b).RoundTrip(req)
	require.NoError(t, err)
	close(answered)
	feeding.Wait()
	reading.Wait()
	require.Equal(t, "first second", got)
	require.NoError(t, resp.Body.Close())
	_, err = feed.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe, "the source is closed")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
