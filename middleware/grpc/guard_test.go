package latchgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latchgrpc "github.com/httplatch/httplatch/middleware/grpc"
)

func once(t *testing.T, opts ...lock.Option) grpc.UnaryServerInterceptor {
	t.Helper()
	return latchgrpc.Once(newLocker(t, opts...), userOf, latchgrpc.IdempotencyKey)
}

// requireRefused checks a refusal with its details, and for how long clients wait before they repeat it.
func requireRefused(t *testing.T, code codes.Code, reason string, err error, trailer metadata.MD) {
	t.Helper()
	s := status.Convert(err)
	require.Equal(t, code, s.Code(), s)
	details := s.Details()
	require.NotEmpty(t, details)
	info, ok := details[0].(*errdetails.ErrorInfo)
	require.True(t, ok)
	require.Equal(t, reason, info.GetReason())
	require.Equal(t, "github.com/httplatch/httplatch", info.GetDomain())
	if code != codes.Unavailable {
		require.Len(t, details, 1)
		require.Empty(t, trailer.Get("grpc-retry-pushback-ms"))
		return
	}
	require.Equal(t, time.Second, details[1].(*errdetails.RetryInfo).GetRetryDelay().AsDuration())
	require.Equal(t, []string{"1000"}, trailer.Get("grpc-retry-pushback-ms"))
}

// TestReplay: a repeat gets the message, and the header and trailer of the handler, also bytes.
func TestReplay(t *testing.T) {
	t.Parallel()
	runs := 0
	conn := serve(t, func(ctx context.Context, order *text) (proto.Message, error) {
		runs++
		header := metadata.Pairs("order", "1", "sum-bin", "\xff\x00", "set-cookie", "session", "authorization", "secret", "mcp-session-id", "session")
		require.NoError(t, grpc.SetHeader(ctx, header))
		require.NoError(t, grpc.SendHeader(ctx, metadata.Pairs("order", "2")))
		require.NoError(t, grpc.SetTrailer(ctx, metadata.Pairs("cost", "2")))
		return wrapperspb.String(fmt.Sprint(order.GetValue(), " ", runs)), nil
	}, once(t))
	for n := range 3 {
		var header, trailer metadata.MD
		require.Equal(t, "tea 1", must.Get(call(t.Context(), conn, "a", "tea", grpc.Header(&header), grpc.Trailer(&trailer)))(t))
		require.Equal(t, []string{"1", "2"}, header.Get("order"))
		require.Equal(t, []string{"\xff\x00"}, header.Get("sum-bin"))
		require.Equal(t, []string{"2"}, trailer.Get("cost"))
		require.Equal(t, n == 0, len(header.Get("set-cookie")) == 1)
		require.Equal(t, n == 0, len(header.Get("mcp-session-id")) == 1)
		require.Equal(t, n == 0, len(header.Get("authorization")) == 1)
		require.Equal(t, n > 0, len(header.Get("idempotent-replayed")) == 1)
	}
}

// TestErrors: which errors of a handler are kept, by their code, as docs/grpc.md lists them.
func TestErrors(t *testing.T) {
	t.Parallel()
	listed := regexp.MustCompile("(?m)^\\| (`.*`) \\| kept").FindStringSubmatch(string(must.Get(os.ReadFile("../../docs/grpc.md"))(t)))
	require.NotNil(t, listed)
	final := map[string]bool{}
	for _, name := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(listed[1], -1) {
		final[name[1]] = true
	}
	runs := 0
	var answer *status.Status
	create := func(ctx context.Context, _ *text) (proto.Message, error) {
		runs++
		require.NoError(t, grpc.SetTrailer(ctx, metadata.Pairs("cost", "2")))
		return nil, answer.Err()
	}
	refusal := must.Get(status.New(codes.FailedPrecondition, "").WithDetails(&errdetails.ErrorInfo{Reason: "OUTCOME_UNKNOWN", Domain: "github.com/httplatch/httplatch"}))(t)
	conn := serve(t, create, once(t))
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		for n, detail := range []protoadapt.MessageV1{nil, &errdetails.ErrorInfo{Reason: "SOLD_OUT", Domain: "shop"}, &errdetails.RetryInfo{RetryDelay: durationpb.New(1)}, refusal.Details()[0].(protoadapt.MessageV1)} {
			answer = status.New(code, "no")
			if detail != nil {
				answer = must.Get(answer.WithDetails(detail))(t)
			}
			runs = 0
			for range 2 {
				var trailer metadata.MD
				_, err := call(t.Context(), conn, fmt.Sprintf("%d-%d", code, n), "tea", grpc.Trailer(&trailer))
				require.Equal(t, answer.Proto().String(), status.Convert(err).Proto().String())
				require.Equal(t, []string{"2"}, trailer.Get("cost"))
			}
			_, retry := detail.(*errdetails.RetryInfo)
			kept := final[code.String()] && !retry && (detail == nil || detail.(*errdetails.ErrorInfo).GetDomain() == "shop")
			require.Equal(t, kept, runs == 1, "%v with %T", code, detail)
		}
	}
	require.Len(t, final, 5)

	none := serve(t, create, latchgrpc.Once(newLocker(t), userOf, latchgrpc.IdempotencyKey, latchgrpc.WithFinal(func(codes.Code) bool { return false })))
	answer, runs = status.New(codes.NotFound, "no"), 0
	for range 2 {
		_, err := call(t.Context(), none, "k", "tea")
		require.Equal(t, codes.NotFound, status.Code(err))
	}
	require.Equal(t, 2, runs)
}

// Each has the code of docs/grpc.md, its kind as the reason, and RetryInfo if it may be sent again.
func TestRefusals(t *testing.T) {
	t.Parallel()
	locker := lock.New(memstore.New())
	arrived, finish := make(chan struct{}), make(chan struct{})
	runs := 0
	conn := serve(t, func(ctx context.Context, order *text) (proto.Message, error) {
		runs++
		switch order.GetValue() {
		case "slow":
			close(arrived)
			<-finish
		case "committed":
			require.NoError(t, lock.Commit(ctx))
			return nil, status.Error(codes.Internal, "the mail was not sent")
		case "large":
			return wrapperspb.String(string(make([]byte, 1<<20))), nil
		}
		return wrapperspb.String("created"), nil
	}, latchgrpc.Once(locker, userOf, latchgrpc.IdempotencyKey))
	send := func(key, order string) (error, metadata.MD) { //nolint:staticcheck // in the order of requireRefused
		var trailer metadata.MD
		_, err := call(t.Context(), conn, key, order, grpc.Trailer(&trailer))
		return err, trailer
	}
	refused := func(code codes.Code, reason, key, order string) {
		t.Helper()
		err, trailer := send(key, order)
		requireRefused(t, code, reason, err, trailer)
	}
	refused(codes.InvalidArgument, "KEY_MISSING", "", "tea")
	refused(codes.InvalidArgument, "KEY_INVALID", "a b", "tea")
	err := conn.Invoke(metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "a"), createMethod, wrapperspb.String("tea"), new(text))
	requireRefused(t, codes.Unauthenticated, "UNAUTHENTICATED", err, nil)
	require.Zero(t, runs)

	_, _ = send("a", "tea")
	refused(codes.InvalidArgument, "KEY_REUSED", "a", "coffee")

	first := make(chan error)
	go func() { err, _ := send("b", "slow"); first <- err }()
	<-arrived
	refused(codes.Unavailable, "IN_PROGRESS", "b", "slow")
	close(finish)
	require.NoError(t, <-first)

	for order, code := range map[string]codes.Code{"committed": codes.Internal, "large": codes.OK} {
		runs = 0
		err, _ := send(order, order)
		require.Equal(t, code, status.Code(err))
		refused(codes.FailedPrecondition, "RESULT_NOT_REPLAYABLE", order, order)
		require.Equal(t, 1, runs)
	}

	// A type that this program does not have, and a record that it cannot read.
	for key, receipt := range map[string]string{"forgotten": `{"type":"shop.v0.Forgotten"}`, "older": "\n\x01x"} {
		_, _, err = locker.Once(t.Context(), lock.Key("call", "42", createMethod, key), nil, func(context.Context) ([]byte, error) { return []byte(receipt), nil })
		require.NoError(t, err)
		refused(codes.FailedPrecondition, "RESULT_NOT_REPLAYABLE", key, "tea")
	}

	require.NoError(t, locker.Close(t.Context()))
	refused(codes.Unavailable, "SHUTTING_DOWN", "z", "tea")
}

// TestPanicFreesTheKey, and an earlier interceptor recovers it. A call that has waited for it did not run.
func TestPanicFreesTheKey(t *testing.T) {
	t.Parallel()
	runs := 0
	arrived, fail := make(chan struct{}), make(chan struct{})
	recovers := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
		defer func() {
			if recover() != nil {
				err = status.Error(codes.Internal, "a panic")
			}
		}()
		return handler(ctx, req)
	}
	locker := newLocker(t, lock.WithWait(time.Minute))
	conn := serve(t, func(context.Context, *text) (proto.Message, error) {
		if runs++; runs == 1 {
			close(arrived)
			<-fail
			panic("boom")
		}
		return wrapperspb.String("created"), nil
	}, recovers, latchgrpc.Once(locker, userOf, latchgrpc.IdempotencyKey))
	first, second := make(chan error), make(chan error)
	var trailer metadata.MD
	go func() { _, err := call(t.Context(), conn, "a", "tea"); first <- err }()
	<-arrived
	go func() { _, err := call(t.Context(), conn, "a", "tea", grpc.Trailer(&trailer)); second <- err }()
	require.Eventually(t, func() bool { return locker.Stats().Active == 2 }, time.Minute, time.Millisecond)
	close(fail)
	require.Equal(t, codes.Internal, status.Code(<-first))
	err := <-second
	requireRefused(t, codes.Unavailable, "FIRST_FAILED", err, trailer)
	must.Get(call(t.Context(), conn, "a", "tea"))(t)
	require.Equal(t, 2, runs)
}

// TestKeys: of a field of the request, as in AIP-155, and of a function that lets calls pass and refuses by its own status.
func TestKeys(t *testing.T) {
	t.Parallel()
	runs := 0
	create := func(context.Context, *text) (proto.Message, error) { runs++; return wrapperspb.String("created"), nil }
	conn := serve(t, create, latchgrpc.Once(newLocker(t), userOf, latchgrpc.Field("value")))
	for range 2 {
		must.Get(call(t.Context(), conn, "", "8e03978e"))(t)
	}
	require.Equal(t, 1, runs)
	_, err := call(t.Context(), conn, "", "")
	requireRefused(t, codes.InvalidArgument, "KEY_MISSING", err, nil)
	_, err = call(t.Context(), serve(t, create, latchgrpc.Once(newLocker(t), userOf, latchgrpc.Field("request_id"))), "", "tea")
	requireRefused(t, codes.Internal, "KEY_FAILED", err, nil)
	require.Equal(t, 1, runs)

	conn = serve(t, create, latchgrpc.Once(newLocker(t), userOf, func(_ context.Context, req any) (string, error) {
		switch order := req.(*text).GetValue(); order {
		case "passes":
			return "", keyfunc.ErrSkip
		case "denied":
			return "", status.Error(codes.PermissionDenied, "not yours")
		default:
			return order, nil
		}
	}))
	for order, want := range map[string]int{"passes": 2, "denied": 0, "tea": 1} {
		runs = 0
		for range 2 {
			_, err := call(t.Context(), conn, "", order)
			require.Equal(t, order == "denied", status.Code(err) == codes.PermissionDenied)
		}
		require.Equal(t, want, runs, order)
	}
}

// TestLock: one call at a time. A retry policy does not repeat what is refused.
func TestLock(t *testing.T) {
	t.Parallel()
	arrived, finish := make(chan struct{}, 1), make(chan struct{})
	locker := newLocker(t)
	conn := serve(t, func(_ context.Context, order *text) (proto.Message, error) {
		if order.GetValue() == "slow" {
			arrived <- struct{}{}
			<-finish
		}
		return nil, status.Error(codes.NotFound, "no such order")
	}, latchgrpc.Lock(locker, "user", func(ctx context.Context, _ any) (string, error) { return userOf(ctx), nil }))
	first := make(chan error)
	go func() { _, err := call(t.Context(), conn, "", "slow"); first <- err }()
	<-arrived
	var trailer metadata.MD
	_, err := call(t.Context(), conn, "", "tea", grpc.Trailer(&trailer))
	requireRefused(t, codes.Aborted, "HELD", err, trailer)
	require.ErrorIs(t, locker.Do(t.Context(), lock.Key("user", "42"), func(context.Context) error { return nil }), lock.ErrHeld)
	close(finish)
	require.Equal(t, codes.NotFound, status.Code(<-first))
	_, err = call(t.Context(), conn, "", "tea")
	require.Equal(t, codes.NotFound, status.Code(err), "the answer of the handler, and the lock is free")
}

// TestStreams pass, unless they are refused. Declared methods without effects pass everywhere.
func TestStreams(t *testing.T) {
	t.Parallel()
	watch := func(opts ...grpc.ServerOption) error {
		listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		start(t, listener, nil, opts...)
		stream := must.Get(dial(t, listener.Addr().String()).NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/shop.v1.Orders/Watch"))(t)
		require.NoError(t, stream.SendMsg(wrapperspb.String("tea")))
		require.NoError(t, stream.CloseSend())
		if err := stream.RecvMsg(new(text)); err != nil {
			return err
		}
		require.ErrorIs(t, stream.RecvMsg(new(text)), io.EOF)
		return nil
	}
	require.NoError(t, watch())
	requireRefused(t, codes.Unimplemented, "KEY_NOT_SUPPORTED", watch(grpc.StreamInterceptor(latchgrpc.RefuseStreams())), nil)
}

// Find and Follow declare that they have no effect, and Rename does not.
func init() { //nolint:gochecknoinits // generated code registers its file so
	method := func(name string, streams bool, level descriptorpb.MethodOptions_IdempotencyLevel) *descriptorpb.MethodDescriptorProto {
		return &descriptorpb.MethodDescriptorProto{
			Name: &name, InputType: new(".google.protobuf.StringValue"), OutputType: new(".google.protobuf.StringValue"),
			ServerStreaming: &streams, Options: &descriptorpb.MethodOptions{IdempotencyLevel: &level},
		}
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("catalogue.proto"), Package: new("shop.v1"), Syntax: new("proto3"),
		Dependency: []string{"google/protobuf/wrappers.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: new("Catalogue"), Method: []*descriptorpb.MethodDescriptorProto{
			method("Find", false, descriptorpb.MethodOptions_NO_SIDE_EFFECTS), method("Follow", true, descriptorpb.MethodOptions_NO_SIDE_EFFECTS),
			method("Rename", false, descriptorpb.MethodOptions_IDEMPOTENT),
		}}},
	}, protoregistry.GlobalFiles)
	if err == nil {
		err = protoregistry.GlobalFiles.RegisterFile(file)
	}
	if err != nil {
		panic(err)
	}
}

type watching struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // as gRPC's own
}

func (w watching) Context() context.Context { return w.ctx }

func TestNoSideEffects(t *testing.T) {
	t.Parallel()
	runs := 0
	handler := func(context.Context, any) (any, error) { runs++; return wrapperspb.String("found"), nil }
	for _, guard := range []grpc.UnaryServerInterceptor{once(t), latchgrpc.Lock(newLocker(t), "user", latchgrpc.IdempotencyKey)} {
		must.Get(guard(t.Context(), wrapperspb.String("tea"), &grpc.UnaryServerInfo{FullMethod: "/shop.v1.Catalogue/Find"}, handler))(t)
	}
	require.Equal(t, 2, runs)
	require.NoError(t, latchgrpc.RefuseStreams()(nil, watching{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/shop.v1.Catalogue/Follow"},
		func(any, grpc.ServerStream) error { return nil }))
}

// TestResponseOfAnotherType: what a method returned before a deployment is not read as what it returns now.
func TestResponseOfAnotherType(t *testing.T) {
	t.Parallel()
	locker := newLocker(t)
	guard := latchgrpc.Once(locker, userOf, latchgrpc.IdempotencyKey)
	for method, code := range map[string]codes.Code{
		"/shop.v1.Catalogue/Rename": codes.FailedPrecondition,
		createMethod:                codes.OK, // the descriptor of the method is not linked in
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("user", "42", "idempotency-key", "a"))
		_, _, err := locker.Once(ctx, lock.Key("call", "42", method, "a"), nil, func(context.Context) ([]byte, error) {
			return []byte(`{"type":"google.protobuf.Int64Value","message":"CAc="}`), nil
		})
		require.NoError(t, err)
		_, err = guard(ctx, wrapperspb.String("tea"), &grpc.UnaryServerInfo{FullMethod: method}, nil)
		require.Equal(t, code, status.Code(err))
	}
}

const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5,
	"initialBackoff": "0.05s", "maxBackoff": "0.2s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// TestLostReply: the connection breaks after each byte of the answers, and the retry policy of gRPC sends the
// call again. The twin without the guard has the effect twice.
func TestLostReply(t *testing.T) {
	t.Parallel()
	for name, guards := range map[string][]grpc.UnaryServerInterceptor{"guarded": {once(t, lock.WithWait(10*time.Second))}, "twin": nil} {
		parallel.Run(t, name, func(t *testing.T) {
			var effects atomic.Int64
			listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
			start(t, listener, func(context.Context, *text) (proto.Message, error) {
				return wrapperspb.String(fmt.Sprint("order ", effects.Add(1))), nil
			}, grpc.ChainUnaryInterceptor(guards...))
			proxy := cutproxy.Start(t, listener.Addr().String())
			doubled, intents := 0, 0
			for after := range 200 {
				proxy.Cut(cutproxy.Response, after)
				soon := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}, MinConnectTimeout: 10 * time.Second}
				conn := dial(t, proxy.Addr(), grpc.WithDefaultServiceConfig(retries), grpc.WithConnectParams(soon))
				before := effects.Load()
				send := func() (string, error) {
					return call(t.Context(), conn, fmt.Sprint(after), fmt.Sprint(after), grpc.WaitForReady(true))
				}
				answer, err := send()
				for status.Code(err) == codes.Unavailable || status.Code(err) == codes.Internal {
					answer, err = send() // gRPC repeats nothing whose header has arrived
				}
				require.NoError(t, err, after)
				made := effects.Load() - before
				intents++
				if guards != nil {
					require.EqualValues(t, 1, made, after)
					require.Equal(t, fmt.Sprint("order ", effects.Load()), answer)
				} else if made > 1 {
					doubled++
				}
			}
			t.Logf("%d calls, %d effects, %d doubled", intents, effects.Load(), doubled)
			if guards == nil {
				require.Positive(t, doubled)
			}
		})
	}
}

// GRPC itself repeats what is refused, after the time that the refusal says, until there is the answer of the first call.
func TestRetryPolicy(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	arrived, finish := make(chan struct{}), make(chan struct{})
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	refused := make(chan error, 9)
	start(t, listener, func(context.Context, *text) (proto.Message, error) {
		runs.Add(1)
		close(arrived)
		<-finish
		return wrapperspb.String("created"), nil
	}, grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		response, err := handler(ctx, req)
		if err != nil {
			refused <- err
		}
		return response, err
	}, once(t)))
	conn := dial(t, listener.Addr().String(), grpc.WithDefaultServiceConfig(retries))
	answers := make(chan error, 2)
	send := func() { _, err := call(t.Context(), conn, "a", "tea"); answers <- err }
	go send()
	<-arrived
	go send()
	require.Equal(t, codes.Unavailable, status.Code(<-refused))
	began := time.Now()
	close(finish)
	require.NoError(t, <-answers)
	require.NoError(t, <-answers)
	require.GreaterOrEqual(t, time.Since(began), 500*time.Millisecond, "not after the 50 ms of the policy")
	require.EqualValues(t, 1, runs.Load())
}

// The handler comes to its end: no error of a header that cannot be sent ends it earlier, and a repeat gets its answer.
func TestHandlerSetsItsHeaderAfterItsClientHasLeft(t *testing.T) {
	t.Parallel()
	arrived, gone := make(chan struct{}, 2), make(chan struct{})
	var leaves sync.Once
	watches := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		context.AfterFunc(ctx, func() { leaves.Do(func() { close(gone) }) })
		return handler(ctx, req)
	}
	conn := serve(t, func(ctx context.Context, _ *text) (proto.Message, error) {
		arrived <- struct{}{}
		<-gone
		set := errors.Join(grpc.SetHeader(ctx, metadata.Pairs("order", "1")), grpc.SetTrailer(ctx, metadata.Pairs("cost", "2")))
		return wrapperspb.String("created"), errors.Join(context.Cause(ctx), set)
	}, watches, once(t, lock.WithWait(time.Minute)))
	ctx, giveUp := context.WithCancel(t.Context())
	go func() { <-arrived; giveUp() }()
	_, err := call(ctx, conn, "a", "tea")
	require.Equal(t, codes.Canceled, status.Code(err))
	<-gone
	var trailer metadata.MD
	require.Equal(t, "created", must.Get(call(t.Context(), conn, "a", "tea", grpc.Trailer(&trailer)))(t))
	require.Equal(t, []string{"2"}, trailer.Get("cost"))
	require.Empty(t, arrived, "it has run again")
}

func TestConstructors(t *testing.T) {
	t.Parallel()
	l := newLocker(t)
	for want, f := range map[string]func(){
		"latchgrpc.Once: nil *lock.Locker":  func() { latchgrpc.Once(nil, userOf, latchgrpc.IdempotencyKey) },
		"latchgrpc.Once: nil scope":         func() { latchgrpc.Once(l, nil, latchgrpc.IdempotencyKey) },
		"latchgrpc.Once: nil key function":  func() { latchgrpc.Once(l, userOf, nil) },
		"latchgrpc.Once: nil Option":        func() { latchgrpc.Once(l, userOf, latchgrpc.IdempotencyKey, nil) },
		"latchgrpc.WithFinal: nil function": func() { latchgrpc.WithFinal(nil) },
		"latchgrpc.Lock: nil *lock.Locker":  func() { latchgrpc.Lock(nil, "user", latchgrpc.IdempotencyKey) },
	} {
		require.PanicsWithValue(t, want, f)
	}
}
