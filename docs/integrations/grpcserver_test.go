package integrations_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/httplatch/httplatch/lock"
)

type grpcCall func(ctx context.Context, user, key, order string) (string, error)

type createFunc func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error)

const createMethod = "/shop.v1.Orders/Create"

// ordersService is what protoc-gen-go-grpc would make of a service with one method.
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

// serveGRPC serves create over a connection of loopback, and returns a function that calls it.
func serveGRPC(t *testing.T, create createFunc, locker *lock.Locker) grpcCall {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := newServer(locker, recoverPanics, callerOf)
	server.RegisterService(&ordersService, create)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
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

// callerOf is what an interceptor for authentication would know.
func callerOf(ctx context.Context) string {
	user := metadata.ValueFromIncomingContext(ctx, "user")
	if len(user) != 1 {
		return ""
	}
	return user[0]
}
