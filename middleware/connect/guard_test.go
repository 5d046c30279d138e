package latchconnect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latchconnect "github.com/httplatch/httplatch/middleware/connect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	text   = wrapperspb.StringValue
	create = func(context.Context, *connect.Request[text]) (*connect.Response[text], error)
)

const procedure = "/shop.v1.Orders/Create"

// protocols are those that a handler of Connect speaks.
var protocols = map[string][]connect.ClientOption{
	"Connect":      nil,
	"Connect JSON": {connect.WithProtoJSON()},
	"gRPC":         {connect.WithGRPC()},
	"gRPC-Web":     {connect.WithGRPCWeb()},
}

func newLocker(t *testing.T, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(memstore.New(), append([]lock.Option{lock.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

func once(t *testing.T, opts ...lock.Option) connect.Interceptor {
	t.Helper()
	return latchconnect.Once(newLocker(t, opts...), userOf, latchconnect.IdempotencyKey)
}

type userKey struct{}

// userOf is what authentication outside would know.
func userOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

func requireUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, r.Header.Get("X-User-ID"))))
	})
}

// serve serves h over HTTP/2, and returns a client of a protocol and a function that calls it.
func serve(t *testing.T, protocol string, h http.Handler) func(key, order string) (*connect.Response[text], error) {
	t.Helper()
	server := httptest.NewUnstartedServer(requireUser(h))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of panics
	server.StartTLS()
	t.Cleanup(server.Close)
	return caller(t, server.Client(), server.URL, protocol)
}

func caller(t *testing.T, over *http.Client, url, protocol string) func(key, order string) (*connect.Response[text], error) {
	t.Helper()
	client := connect.NewClient[text, text](over, url+procedure, protocols[protocol]...)
	return func(key, order string) (*connect.Response[text], error) {
		req := connect.NewRequest(wrapperspb.String(order))
		req.Header().Set("X-User-ID", "42")
		if key != "" {
			req.Header().Set("Idempotency-Key", key)
		}
		return client.CallUnary(t.Context(), req)
	}
}

func handler(f create, guards ...connect.Interceptor) http.Handler {
	return connect.NewUnaryHandler(procedure, f, connect.WithInterceptors(guards...))
}

func requireRefused(t *testing.T, code connect.Code, reason string, err error) {
	t.Helper()
	refused, ok := errors.AsType[*connect.Error](err)
	require.True(t, ok, err)
	require.Equal(t, code, refused.Code(), err)
	var details []proto.Message
	for _, d := range refused.Details() {
		details = append(details, must.Get(d.Value())(t))
	}
	require.NotEmpty(t, details)
	require.Equal(t, reason, details[0].(*errdetails.ErrorInfo).GetReason())
	if code != connect.CodeUnavailable {
		require.Len(t, details, 1)
		return
	}
	require.Equal(t, time.Second, details[1].(*errdetails.RetryInfo).GetRetryDelay().AsDuration())
}

func each(t *testing.T, run func(t *testing.T, protocol string)) {
	t.Helper()
	for protocol := range protocols {
		parallel.Run(t, protocol, func(t *testing.T) { ; run(t, protocol) })
	}
}

// TestReplay: a repeat gets the message, the header and the trailer of the handler, over each protocol.
func TestReplay(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, protocol string) {
		runs := 0
		call := serve(t, protocol, handler(func(_ context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
			runs++
			resp := connect.NewResponse(wrapperspb.String(fmt.Sprint(req.Msg.GetValue(), " ", runs)))
			resp.Header().Add("Order", "1")
			resp.Header().Add("Order", "2")
			resp.Header().Set("Set-Cookie", "session=secret")
			resp.Header().Set("Mcp-Session-Id", "session")
			resp.Trailer().Set("Cost", "2")
			return resp, nil
		}, once(t)))
		for n := range 3 {
			resp := must.Get(call("a", "tea"))(t)
			require.Equal(t, "tea 1", resp.Msg.GetValue())
			require.Equal(t, []string{"1", "2"}, resp.Header().Values("Order"))
			require.Equal(t, "2", resp.Trailer().Get("Cost"))
			require.Equal(t, n == 0, resp.Header().Get("Set-Cookie") != "")
			require.Equal(t, n == 0, resp.Header().Get("Mcp-Session-Id") != "")
			require.Equal(t, n > 0, resp.Header().Get("Idempotent-Replayed") == "true")
		}
	})
}

// TestErrors: which errors of a handler are kept, by their code, over each protocol.
func TestErrors(t *testing.T) {
	t.Parallel()
	final := map[connect.Code]bool{
		connect.CodeInvalidArgument: true, connect.CodeNotFound: true, connect.CodeAlreadyExists: true,
		connect.CodeFailedPrecondition: true, connect.CodeOutOfRange: true,
	}
	each(t, func(t *testing.T, protocol string) {
		runs := 0
		var answer *connect.Error
		fails := func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
			runs++
			return nil, answer
		}
		call := serve(t, protocol, handler(fails, once(t)))
		for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
			for n, detail := range []proto.Message{
				&errdetails.ErrorInfo{Reason: "SOLD_OUT", Domain: "shop"},
				&errdetails.RetryInfo{RetryDelay: durationpb.New(1)},
				&errdetails.ErrorInfo{Reason: "OUTCOME_UNKNOWN", Domain: "github.com/httplatch/httplatch"}, // of an inner guard
				&errdetails.ErrorInfo{Reason: "SOLD_OUT", Domain: "stock"},                                 // of another server
			} {
				cost := "2"
				if answer = connect.NewError(code, errors.New("no")); n == 3 {
					answer, cost = connect.NewWireError(code, errors.New("no")), "" // Connect does not send its headers
				}
				d := must.Get(connect.NewErrorDetail(detail))(t)
				answer.AddDetail(d)
				answer.Meta().Set("Cost", "2")
				runs = 0
				for range 2 {
					_, err := call(fmt.Sprintf("%d-%d", code, n), "tea")
					got, ok := errors.AsType[*connect.Error](err)
					require.True(t, ok)
					require.Equal(t, code, got.Code())
					require.Equal(t, "no", got.Message())
					require.Len(t, got.Details(), 1)
					require.Equal(t, d.Bytes(), got.Details()[0].Bytes())
					require.Equal(t, cost, got.Meta().Get("Cost"))
				}
				require.Equal(t, final[code] && (n == 0 || n == 3), runs == 1, "%v with %T", code, detail)
			}
		}
		none := serve(t, protocol, handler(fails, latchconnect.Once(newLocker(t), userOf, latchconnect.IdempotencyKey, latchconnect.WithFinal(func(connect.Code) bool { return false }))))
		answer, runs = connect.NewError(connect.CodeNotFound, errors.New("no")), 0
		for range 2 {
			_, err := none("a", "tea")
			require.Equal(t, connect.CodeNotFound, connect.CodeOf(err))
		}
		require.Equal(t, 2, runs)
	})
}

// TestRefusals: each has its code, its kind as the reason, and RetryInfo if it may be sent again.
func TestRefusals(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, protocol string) {
		locker := lock.New(memstore.New())
		arrived, finish := make(chan struct{}), make(chan struct{})
		runs := 0
		h := handler(func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
			runs++
			switch req.Msg.GetValue() {
			case "slow":
				close(arrived)
				<-finish
			case "committed":
				if err := lock.Commit(ctx); err != nil {
					return nil, err
				}
				return nil, errors.New("the mail was not sent")
			}
			return connect.NewResponse(wrapperspb.String("created")), nil
		}, latchconnect.Once(locker, userOf, latchconnect.IdempotencyKey))
		call := serve(t, protocol, h)
		refused := func(code connect.Code, reason, key, order string) {
			t.Helper()
			_, err := call(key, order)
			requireRefused(t, code, reason, err)
		}
		refused(connect.CodeInvalidArgument, "KEY_MISSING", "", "tea")
		refused(connect.CodeInvalidArgument, "KEY_INVALID", "a b", "tea")
		require.Zero(t, runs)
		must.Get(call("a", "tea"))(t)
		refused(connect.CodeInvalidArgument, "KEY_REUSED", "a", "coffee")

		first := make(chan error)
		go func() { _, err := call("b", "slow"); first <- err }()
		<-arrived
		refused(connect.CodeUnavailable, "IN_PROGRESS", "b", "slow")
		close(finish)
		require.NoError(t, <-first)

		_, err := call("c", "committed")
		require.Equal(t, connect.CodeUnknown, connect.CodeOf(err))
		refused(connect.CodeFailedPrecondition, "RESULT_NOT_REPLAYABLE", "c", "committed")
		require.Equal(t, 3, runs)
		require.NoError(t, locker.Close(t.Context()))
		refused(connect.CodeUnavailable, "SHUTTING_DOWN", "z", "tea")

		nobody := latchconnect.Once(newLocker(t), func(context.Context) string { return "" }, latchconnect.IdempotencyKey)
		_, err = serve(t, protocol, handler(nil, nobody))("a", "tea")
		requireRefused(t, connect.CodeUnauthenticated, "UNAUTHENTICATED", err)
	})
}

// TestKeys: of a field, and of a function that lets calls pass and refuses by its own error.
func TestKeys(t *testing.T) {
	t.Parallel()
	runs := 0
	count := func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
		runs++
		return connect.NewResponse(wrapperspb.String("created")), nil
	}
	call := serve(t, "Connect", handler(count, latchconnect.Once(newLocker(t), userOf, latchconnect.Field("value"))))
	for range 2 {
		must.Get(call("", "8e03978e"))(t)
	}
	require.Equal(t, 1, runs)
	_, err := call("", "")
	requireRefused(t, connect.CodeInvalidArgument, "KEY_MISSING", err)
	_, err = serve(t, "Connect", handler(count, latchconnect.Once(newLocker(t), userOf, latchconnect.Field("request_id"))))("", "tea")
	requireRefused(t, connect.CodeInternal, "KEY_FAILED", err)

	call = serve(t, "Connect", handler(count, latchconnect.Once(newLocker(t), userOf, func(_ context.Context, req connect.AnyRequest) (string, error) {
		if req.Any().(*text).GetValue() == "passes" {
			return "", keyfunc.ErrSkip
		}
		return "", connect.NewError(connect.CodePermissionDenied, errors.New("not yours"))
	})))
	for order, want := range map[string]int{"passes": 2, "tea": 0} {
		runs = 0
		for range 2 {
			_, err := call("", order)
			require.Equal(t, want == 0, connect.CodeOf(err) == connect.CodePermissionDenied)
		}
		require.Equal(t, want, runs)
	}
}

// TestNoSideEffects: such procedures pass, streams of others are refused, and clients are not guarded.
func TestNoSideEffects(t *testing.T) {
	t.Parallel()
	runs := 0
	count := func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
		runs++
		return connect.NewResponse(wrapperspb.String("found")), nil
	}
	watch := func(_ context.Context, _ *connect.Request[text], stream *connect.ServerStream[text]) error {
		return stream.Send(wrapperspb.String("watched"))
	}
	for _, guard := range []connect.Interceptor{once(t), latchconnect.Lock(newLocker(t), "user", latchconnect.IdempotencyKey)} {
		plain := httptest.NewServer(handler(count))
		must.Get(connect.NewClient[text, text](plain.Client(), plain.URL+procedure, connect.WithInterceptors(guard)).
			CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("tea"))))(t)
		plain.Close()
		safe := []connect.HandlerOption{connect.WithInterceptors(guard), connect.WithIdempotency(connect.IdempotencyNoSideEffects)}
		must.Get(serve(t, "Connect", connect.NewUnaryHandler(procedure, count, safe...))("", "tea"))(t)

		streamed := func(opts ...connect.HandlerOption) error {
			server := httptest.NewServer(connect.NewServerStreamHandler(procedure, watch, opts...))
			defer server.Close()
			client := connect.NewClient[text, text](server.Client(), server.URL+procedure, connect.WithInterceptors(guard))
			stream := must.Get(client.CallServerStream(t.Context(), connect.NewRequest(wrapperspb.String("tea"))))(t)
			defer func() { require.NoError(t, stream.Close()) }()
			for stream.Receive() {
				runs++
			}
			return stream.Err()
		}
		requireRefused(t, connect.CodeUnimplemented, "KEY_NOT_SUPPORTED", streamed(connect.WithInterceptors(guard)))
		require.NoError(t, streamed(safe...))
		require.NoError(t, streamed(connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			if spec.StreamType != connect.StreamTypeUnary {
				return nil
			}
			return []connect.HandlerOption{connect.WithInterceptors(guard)}
		})))
	}
	require.Equal(t, 8, runs)
}

// TestLock: one call at a time, and a worker is excluded.
func TestLock(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, protocol string) {
		arrived, finish := make(chan struct{}), make(chan struct{})
		locker := newLocker(t)
		call := serve(t, protocol, handler(func(_ context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
			if req.Msg.GetValue() == "slow" {
				close(arrived)
				<-finish
			}
			return nil, connect.NewError(connect.CodeNotFound, errors.New("no such order"))
		}, latchconnect.Lock(locker, "user", func(ctx context.Context, _ connect.AnyRequest) (string, error) { return userOf(ctx), nil })))
		first := make(chan error)
		go func() { _, err := call("", "slow"); first <- err }()
		<-arrived
		_, err := call("", "tea")
		requireRefused(t, connect.CodeAborted, "HELD", err)
		require.ErrorIs(t, locker.Do(t.Context(), lock.Key("user", "42"), func(context.Context) error { return nil }), lock.ErrHeld)
		close(finish)
		require.Equal(t, connect.CodeNotFound, connect.CodeOf(<-first))
		_, err = call("", "tea")
		require.Equal(t, connect.CodeNotFound, connect.CodeOf(err))
	})
}

// TestLostReply: the connection breaks after each byte of the answer, and the client repeats. The twin has no guard.
func TestLostReply(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"Connect", "gRPC", "gRPC-Web"} {
		for name, guards := range map[string][]connect.Interceptor{"guarded": {once(t, lock.WithWait(10*time.Second))}, "twin": nil} {
			parallel.Run(t, protocol+" "+name, func(t *testing.T) {
				var effects atomic.Int64
				server := httptest.NewUnstartedServer(requireUser(handler(func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
					return connect.NewResponse(wrapperspb.String(fmt.Sprint("order ", effects.Add(1)))), nil
				}, guards...)))
				unencrypted := new(http.Protocols)
				unencrypted.SetUnencryptedHTTP2(true)
				unencrypted.SetHTTP1(true)
				server.Config.Protocols = unencrypted
				server.Start()
				t.Cleanup(server.Close)
				proxy := cutproxy.Start(t, server.URL)
				speaks := new(http.Protocols)
				speaks.SetUnencryptedHTTP2(protocol == "gRPC")
				speaks.SetHTTP1(protocol != "gRPC")
				doubled := 0
				for after := range 200 {
					proxy.Cut(cutproxy.Response, after)
					transport := &http.Transport{Protocols: speaks}
					call := caller(t, &http.Client{Transport: transport}, proxy.URL(), protocol)
					before := effects.Load()
					resp, err := call(fmt.Sprint(after), "tea")
					for err != nil {
						resp, err = call(fmt.Sprint(after), "tea")
					}
					transport.CloseIdleConnections()
					if made := effects.Load() - before; guards != nil {
						require.EqualValues(t, 1, made, after)
						require.Equal(t, fmt.Sprint("order ", effects.Load()), resp.Msg.GetValue())
					} else if made > 1 {
						doubled++
					}
				}
				t.Logf("200 calls, %d effects, %d doubled", effects.Load(), doubled)
				require.Equal(t, guards == nil, doubled > 0)
			})
		}
	}
}

func TestConstructors(t *testing.T) {
	t.Parallel()
	l := newLocker(t)
	for want, f := range map[string]func(){
		"latchconnect.Once: nil *lock.Locker":  func() { latchconnect.Once(nil, userOf, latchconnect.IdempotencyKey) },
		"latchconnect.Once: nil scope":         func() { latchconnect.Once(l, nil, latchconnect.IdempotencyKey) },
		"latchconnect.Once: nil key function":  func() { latchconnect.Once(l, userOf, nil) },
		"latchconnect.Once: nil Option":        func() { latchconnect.Once(l, userOf, latchconnect.IdempotencyKey, nil) },
		"latchconnect.WithFinal: nil function": func() { latchconnect.WithFinal(nil) },
		"latchconnect.Lock: nil *lock.Locker":  func() { latchconnect.Lock(nil, "user", latchconnect.IdempotencyKey) },
	} {
		require.PanicsWithValue(t, want, f)
	}
}

// TestWaitersHaveTheirOwnError: of calls that have waited for one that fails, each gets an equal error, whose headers an
// interceptor outside may change.
func TestWaitersHaveTheirOwnError(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, lock.WithWait(time.Minute))
	call := serve(t, "Connect", handler(func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
		assert.Eventually(t, func() bool { return locker.Snapshot(1, nil).Holds[0].Waiting == 31 }, time.Minute, time.Millisecond)
		failed := connect.NewError(connect.CodeUnavailable, errors.New("sold out"))
		failed.AddDetail(must.Get(connect.NewErrorDetail(wrapperspb.String("tea")))(t))
		failed.Meta().Set("Cost", "2")
		return nil, fmt.Errorf("wrapped: %w", failed)
	}, connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			_, err := next(ctx, req)
			if failed, ok := errors.AsType[*connect.Error](err); ok {
				failed.Meta().Add("Request", "1")
			}
			return nil, err
		}
	}), latchconnect.Once(locker, userOf, latchconnect.IdempotencyKey)))
	var calls sync.WaitGroup
	for range 32 {
		calls.Go(func() {
			_, err := call("a", "tea")
			failed, _ := errors.AsType[*connect.Error](err)
			assert.Equal(t, "unavailable: sold out", fmt.Sprint(failed))
			assert.Len(t, failed.Details(), 1)
			assert.Equal(t, []string{"2", "1"}, append(failed.Meta().Values("Cost"), failed.Meta().Values("Request")...))
		})
	}
	calls.Wait()
}
