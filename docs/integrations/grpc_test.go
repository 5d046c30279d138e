package integrations_test

import (
	"context"
	"net"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latchgrpc "github.com/httplatch/httplatch/middleware/grpc"
)

func newServer(locker *lock.Locker, auth grpc.UnaryServerInterceptor, userOf func(context.Context) string) *grpc.Server {
	patient := locker.With(lock.WithWait(10 * time.Second)) // a repeat waits for the first answer
	return grpc.NewServer(
		grpc.ChainUnaryInterceptor(auth, latchgrpc.Once(patient, userOf, latchgrpc.IdempotencyKey)),
		grpc.ChainStreamInterceptor(latchgrpc.RefuseStreams()),
	)
}

// TestSharedKeys: a call to a server of grpc-go and its repeat at one of connect-go, and the other way round, are one
// effect with one answer: message, error, header and trailer.
func TestSharedKeys(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, memstore.New())
	runs := 0
	rpc := serveGRPC(t, func(ctx context.Context, order *text) (*text, error) {
		runs++
		_ = grpc.SetHeader(ctx, metadata.Pairs("sum-bin", "\xff\x00", "order", "1"))
		if order.GetValue() == "sold out" {
			return nil, status.Error(codes.NotFound, "sold out")
		}
		return wrapperspb.String("created"), nil
	}, locker)
	overConnect := serveConnect(t, ordersHandler(locker, func(_ context.Context, order *connect.Request[text]) (*connect.Response[text], error) {
		runs++
		response := connect.NewResponse(wrapperspb.String("created"))
		response.Header().Set("Sum-Bin", connect.EncodeBinaryHeader([]byte("\xff\x00")))
		response.Header().Set("Order", "1")
		if order.Msg.GetValue() == "sold out" {
			return nil, connect.NewError(connect.CodeNotFound, errFailed)
		}
		return response, nil
	}))
	for order, code := range map[string]codes.Code{"tea": codes.OK, "sold out": codes.NotFound} {
		for _, first := range []string{"grpc-go", "connect-go"} {
			runs = 0
			one := func() {
				_, err := rpc(t.Context(), "42", first+order[:3], order)
				require.Equal(t, code, status.Code(err))
			}
			other := func() {
				for protocol := range protocols {
					response, err := overConnect(protocol, first+order[:3], order)
					if code != codes.OK {
						require.Equal(t, connect.Code(code), connect.CodeOf(err))
						continue
					}
					require.NoError(t, err)
					require.Equal(t, "created", response.Msg.GetValue())
					require.Equal(t, "1", response.Header().Get("Order"))
					require.Equal(t, "\xff\x00", string(must.Get(connect.DecodeBinaryHeader(response.Header().Get("Sum-Bin")))(t)))
				}
			}
			if first == "grpc-go" {
				one()
			}
			other()
			one()
			require.Equal(t, 1, runs, first)
		}
	}
}

type grpcCall func(ctx context.Context, user, key, order string) (string, error)

type createFunc func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error)

const createMethod = "/shop.v1.Orders/Create"

// ordersService describes a service with one method, as protoc-gen-go-grpc does.
var ordersService = grpc.ServiceDesc{
	ServiceName: "shop.v1.Orders",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Create",
		Handler: func(service any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			handler := func(ctx context.Context, req any) (any, error) {
				return service.(createFunc)(ctx, req.(*wrapperspb.StringValue))
			}
			return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: service, FullMethod: createMethod}, handler)
		},
	}},
}

func serveGRPC(t *testing.T, create createFunc, locker *lock.Locker) grpcCall {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := newServer(locker, recoverPanics, callerOf)
	server.RegisterService(&ordersService, create)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn := must.Get(grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		server.GracefulStop()
		require.NoError(t, <-served)
	})
	return func(ctx context.Context, user, key, order string) (string, error) {
		ctx = metadata.AppendToOutgoingContext(ctx, "user", user, "idempotency-key", key)
		reply := new(wrapperspb.StringValue)
		err := conn.Invoke(ctx, createMethod, wrapperspb.String(order), reply)
		return reply.GetValue(), err
	}
}

func recoverPanics(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.Unavailable, "a panic")
		}
	}()
	return handler(ctx, req)
}

// callerOf returns the caller, in place of an interceptor for authentication.
func callerOf(ctx context.Context) string {
	user := metadata.ValueFromIncomingContext(ctx, "user")
	if len(user) != 1 {
		return ""
	}
	return user[0]
}
