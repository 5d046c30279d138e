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
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
)

// cutBody is a base that reads a number of bytes of the body of each attempt, and fails. After the last number it answers.
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

// An attempt gets the whole body, wherever the one before ended, and the source is read and closed once.
func TestBodiesAreKept(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		for _, cuts := range [][]int{{0}, {3}, {100}, {3, 1, 5}, {0, 0, 7}, {7, 100, 0}} {
			for _, length := range []int64{-1, 0, 10} {
				source := &watched{Reader: plainReader{strings.NewReader("0123456789")}}
				b := &cutBody{cuts: cuts}
				req := request(t.Context(), t, http.MethodPost, "")
				req.Body, req.ContentLength = source, length
				require.Equal(t, len(cuts)+1, client.Attempts(must.Get(client.Transport(b).RoundTrip(req))(t)))
				require.Equal(t, "0123456789", b.got[len(cuts)])
				for i, n := range cuts {
					require.Equal(t, "0123456789"[:min(n, 10)], b.got[i])
				}
				require.Equal(t, 1, source.closed)
			}
		}
	})
}

// A body is sent again if as many bytes as the limit, or fewer, were read of it, unless it was announced to have more.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	const whole = "0123456789"
	failure := errors.New("the disk failed")
	tests := []struct {
		name  string
		limit int64
		read  int // by the first attempt
		set   func(*http.Request)
		got   []string
		err   string
	}{
		{"the limit", 10, 100, nil, []string{whole, whole}, ""},
		{"over the limit", 9, 100, nil, []string{whole}, "the connection broke"},
		{"over the limit, which was read of it", 5, 5, nil, []string{whole[:5], whole}, ""},
		{"over the limit, and a byte more was read", 5, 6, nil, []string{whole[:6]}, "the connection broke"},
		{"over the limit, as announced", 9, 0, func(r *http.Request) { r.ContentLength = 10 }, []string{""}, "the connection broke"},
		{"no limit", 0, 100, nil, []string{whole}, "the connection broke"},
		{"GetBody fails", 20, 100, func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return nil, failure }
		}, []string{whole}, "the connection broke"},
		{"the source fails", 20, 100, func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("012"), failing{failure}))
		}, []string{"012"}, "the disk failed"},
	}
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range tests {
			b := &cutBody{cuts: []int{tt.read}}
			req := digits(t)
			if tt.set != nil {
				tt.set(req)
			}
			_, err := client.Transport(b, client.WithBodyLimit(tt.limit)).RoundTrip(req)
			require.Equal(t, tt.got, b.got, tt.name)
			if tt.err == "" {
				require.NoError(t, err, tt.name)
			} else {
				require.ErrorContains(t, err, tt.err, tt.name)
			}
		}
	})

	b := always(answer(503, "busy"))
	resp := must.Get(client.Transport(b, client.WithBodyLimit(5)).RoundTrip(digits(t)))(t)
	require.Equal(t, "busy", bodyOf(t, resp), "the refusal is the answer then")
	require.Len(t, b.sent, 1)
}

// slowBase returns from the first attempt while its body is still being read, as net/http may.
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

// Bytes that an ended attempt still reads from the source are not lost to the next attempt. If they are more than the
// limit, the next attempt fails, and never sends a body with a hole.
func TestBodyOfAnAttemptThatIsOver(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
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

// The body is not read ahead of the base, so that its source can wait for the answer.
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
	resp := must.Get(client.Transport(b).RoundTrip(req))(t)
	close(answered)
	feeding.Wait()
	reading.Wait()
	require.Equal(t, "first second", got)
	require.NoError(t, resp.Body.Close())
	_, err := feed.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe, "the source is closed")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
