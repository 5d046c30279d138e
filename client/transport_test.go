package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	own := func(key string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Idempotency-Key", key) }
	}
	background := context.Background()
	method := client.WithNewKey(func(r *http.Request) string { return r.Method })
	none := client.WithNewKey(func(*http.Request) string { return "" })
	quoted := client.WithQuotedKeys()
	for _, tt := range []struct {
		name string
		ctx  context.Context //nolint:containedctx // a row of a table
		set  func(*http.Request)
		opts []client.Option
		want string // a pattern
	}{
		{"nothing", background, nil, nil, "[A-Z2-7]{26}"},
		{"nothing, quoted", background, nil, []client.Option{quoted}, `"[A-Z2-7]{26}"`},
		{"context", client.WithKey(background, "draft-7"), nil, nil, "draft-7"},
		{"context, quoted", client.WithKey(background, "draft-7"), nil, []client.Option{quoted}, `"draft-7"`},
		{"header before context", client.WithKey(background, "draft-7"), own("mine"), nil, "mine"},
		{"header as it is", background, own(`"a (b)"`), nil, `"a \(b\)"`},
		{"header as it is, not quoted", background, own("h"), []client.Option{quoted}, "h"},
		{"option", background, nil, []client.Option{method}, "POST"},
		{"option, quoted", background, nil, []client.Option{method, quoted}, `"POST"`},
		{"context before option", client.WithKey(background, "k"), nil, []client.Option{method}, "k"},
		{"context without", client.WithKey(background, ""), nil, []client.Option{quoted}, ""},
		{"option without", background, nil, []client.Option{none}, ""},
		{"inner context", client.WithKey(client.WithKey(background, "outer"), "inner"), nil, nil, "inner"},
		{"longest", client.WithKey(background, strings.Repeat("k", 255)), nil, nil, "k{255}"},
	} {
		for _, body := range []string{"", "tea"} {
			b := always(created)
			req := request(tt.ctx, t, http.MethodPost, body)
			if tt.set != nil {
				tt.set(req)
			}
			before := req.Header.Clone()
			resp, err := client.Transport(b, tt.opts...).RoundTrip(req)
			require.NoError(t, err, tt.name)
			require.Equal(t, before, req.Header, "%s: the caller's request is not changed", tt.name)
			got := keyIn(b.sent[0].request)
			require.Equal(t, got, resp.Request.Header.Get("Idempotency-Key"), "%s: the response says what was sent", tt.name)
			require.Regexp(t, "^"+tt.want+"$", got, tt.name)
		}
	}
}

func TestInvalidKeys(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"a b", "a\nb", "ä", `a"`, `a\`, "a,b", "a;b", "(a", "a)", "\x7f", strings.Repeat("k", 256)} {
		for name, rt := range map[string]func(b *base) (http.RoundTripper, context.Context){
			"context": func(b *base) (http.RoundTripper, context.Context) {
				return client.Transport(b), client.WithKey(t.Context(), key)
			},
			"option": func(b *base) (http.RoundTripper, context.Context) {
				return client.Transport(b, client.WithNewKey(func(*http.Request) string { return key })), t.Context()
			},
		} {
			b := always(created)
			transport, ctx := rt(b)
			req := request(ctx, t, http.MethodPost, "tea")
			body := &watched{Reader: req.Body}
			req.Body = body
			_, err := transport.RoundTrip(req)
			require.ErrorContains(t, err, "client: a key has 1 to 255", "%s %q", name, key)
			require.Empty(t, b.sent)
			require.Equal(t, 1, body.closed)
		}
	}
}

// watched counts how often a body is closed.
type watched struct {
	io.Reader
	closed int
}

func (w *watched) Close() error { w.closed++; return nil }

func TestTransportsInsideEachOtherHaveOneKey(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "tea"} {
		b := always(created)
		resp := must.Get(client.Transport(client.Transport(b)).RoundTrip(request(t.Context(), t, http.MethodPost, body)))(t)
		n := 0
		for name, values := range b.sent[0].request.Header {
			if strings.EqualFold(name, "Idempotency-Key") {
				n += len(values)
			}
		}
		require.Equal(t, 1, n)
		require.Equal(t, keyIn(b.sent[0].request), keyIn(resp.Request))
	}
}

func TestRequestsThatAreNotForIt(t *testing.T) {
	t.Parallel()
	for _, spoil := range []func(*http.Request){
		func(r *http.Request) { r.URL = nil },
		func(r *http.Request) { r.Header = nil },
		func(r *http.Request) { r.URL.Scheme = "file" },
		func(r *http.Request) { r.Method = http.MethodConnect },
	} {
		b := always(created)
		req := request(t.Context(), t, http.MethodPost, "")
		spoil(req)
		must.Get(client.Transport(b).RoundTrip(req))(t)
		require.Same(t, req, b.sent[0].request)
	}
}

func TestAttemptsOfOtherResponses(t *testing.T) {
	t.Parallel()
	require.Zero(t, client.Attempts(nil))
	require.Zero(t, client.Attempts(&http.Response{}))
	require.Zero(t, client.Attempts(&http.Response{Request: request(t.Context(), t, http.MethodGet, "")}))
}

func TestBaseThatReturnsNothing(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		b := &base{answer: func(int, *http.Request) (*http.Response, error) { return nil, nil }} //nolint:nilnil // that is the fault
		_, err := client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, ""))
		require.ErrorContains(t, err, "neither a response nor an error")
	})
}

// Each is twice as long as the one before, less up to a half, and a Retry-After comes in addition.
func TestPauses(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		var waits []time.Duration
		hook := client.WithHook(func(a client.Attempt) { waits = append(waits, a.Wait) })
		opts := []client.Option{hook, client.WithAttempts(6), client.WithBackoff(time.Second, 4*time.Second)}
		for after, extra := range map[string]time.Duration{"Retry-After: 3": 3 * time.Second, "Retry-After: 0": 0, "X: y": 0, "Retry-After: soon": 0} {
			waits = nil
			start := time.Now()
			must.Get(client.Transport(always(answer(503, "", after)), opts...).RoundTrip(request(t.Context(), t, http.MethodPost, "")))(t)
			require.Len(t, waits, 6)
			var sum time.Duration
			for i, seconds := range []int{1, 2, 4, 4, 4} {
				longest := time.Duration(seconds) * time.Second
				require.LessOrEqual(t, waits[i], longest+extra, "%s: pause %d", after, i)
				require.Greater(t, waits[i], longest/2+extra, "%s: pause %d", after, i)
				sum += waits[i]
			}
			require.Zero(t, waits[5])
			require.Equal(t, sum, time.Since(start))
		}
	})
}

func TestContext(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		// The pause would outlast the deadline: the answer at once.
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		start := time.Now()
		b := always(answer(503, "busy", "Retry-After: 2"))
		resp := must.Get(client.Transport(b).RoundTrip(request(ctx, t, http.MethodPost, "")))(t)
		require.Equal(t, "busy", bodyOf(t, resp))
		require.Zero(t, time.Since(start))
		require.Len(t, b.sent, 1)
		cancel()

		// It ends during a pause: its cause, and no other attempt.
		ctx, cancelCause := context.WithCancelCause(t.Context())
		why := errors.New("the user has gone")
		time.AfterFunc(1500*time.Millisecond, func() { cancelCause(why) })
		b = always(answer(503, "", "Retry-After: 1"))
		start = time.Now()
		_, err := client.Transport(b).RoundTrip(request(ctx, t, http.MethodPost, "tea"))
		require.ErrorIs(t, err, why)
		require.Equal(t, 1500*time.Millisecond, time.Since(start))
		require.Len(t, b.sent, 2)

		// It has ended when the attempt fails.
		b = &base{answer: func(int, *http.Request) (*http.Response, error) { return nil, io.EOF }}
		_, err = client.Transport(b).RoundTrip(request(ctx, t, http.MethodPost, ""))
		require.Equal(t, io.EOF, err)
		require.Len(t, b.sent, 1)
	})
}

func TestHookReportsEachAttempt(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		var lines []string
		hook := client.WithHook(func(a client.Attempt) {
			require.Equal(t, "k", a.Request.Header.Get("Idempotency-Key"))
			require.Equal(t, a.Again, a.Wait > 0)
			lines = append(lines, fmt.Sprint(a.Number, " ", a.Status, " ", a.Problem, " ", a.Err, " ", a.Reason))
		})
		b := &base{answer: func(n int, _ *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				return nil, io.EOF
			case 2:
				return problem(409, "in-progress")(), nil
			case 3:
				resp := created()
				resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("ord"), failing{io.ErrUnexpectedEOF}))
				return resp, nil
			}
			return created(), nil
		}}
		resp := must.Get(client.Transport(b, hook).RoundTrip(request(client.WithKey(t.Context(), "k"), t, http.MethodPost, "")))(t)
		require.Equal(t, "order 1", bodyOf(t, resp))
		require.Equal(t, []string{
			"1 0  EOF the connection failed",
			"2 409 in-progress <nil> in-progress",
			"3 201  <nil> it was answered",
			"3 201  unexpected EOF the connection failed",
			"4 201  <nil> it was answered",
		}, lines)
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestOptionsPanic(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"WithAttempts":  func() { client.WithAttempts(0) },
		"WithBackoff":   func() { client.WithBackoff(0, time.Second) },
		"WithBackoff 2": func() { client.WithBackoff(2*time.Second, time.Second) },
		"WithMaxWait":   func() { client.WithMaxWait(-1) },
		"WithBodyLimit": func() { client.WithBodyLimit(-1) },
		"WithBudget":    func() { client.WithBudget(math.NaN(), 1) },
		"WithBudget 2":  func() { client.WithBudget(math.Inf(1), 1) },
		"WithBudget 3":  func() { client.WithBudget(1, -1) },
		"WithNewKey":    func() { client.WithNewKey(nil) },
		"WithHook":      func() { client.WithHook(nil) },
		"nil Option":    func() { client.Transport(nil, nil) },
	} {
		func() {
			defer func() { require.Contains(t, fmt.Sprint(recover()), "client: "+strings.TrimRight(name, " 23")) }()
			f()
		}()
	}
}

func TestCloseIdleConnections(t *testing.T) {
	t.Parallel()
	b := &closing{base: always(created)}
	(&http.Client{Transport: client.Transport(b)}).CloseIdleConnections()
	require.Equal(t, 1, b.closed)
	(&http.Client{Transport: client.Transport(always(created))}).CloseIdleConnections()
}

type closing struct {
	*base
	closed int
}

func (c *closing) CloseIdleConnections() { c.closed++ }
