package latchgrpc_test

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type text = wrapperspb.StringValue

type createFunc func(context.Context, *text) (proto.Message, error)

const createMethod = "/shop.v1.Orders/Create"

// service is what protoc-gen-go-grpc would make of a service with a unary method and a stream.
var service = grpc.ServiceDesc{
	ServiceName: "shop.v1.Orders",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Create",
		Handler: func(service any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(text)
			if err := decode(in); err != nil {
				return nil, err
			}
			handler := func(ctx context.Context, req any) (any, error) {
				response, err := service.(createFunc)(ctx, req.(*text))
				return response, err
			}
			if interceptor == nil {
				return handler(ctx, in)
			}
			return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: service, FullMethod: createMethod}, handler)
		},
	}},
	Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
		return stream.SendMsg(wrapperspb.String("watched"))
	}}},
}

func newLocker(t *testing.T, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(memstore.New(), append([]lock.Option{lock.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

// serve serves create over loopback, and returns a connection to it.
func serve(t *testing.T, create createFunc, guards ...grpc.UnaryServerInterceptor) *grpc.ClientConn {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	conn := dial(t, listener.Addr().String())
	start(t, listener, create, grpc.ChainUnaryInterceptor(guards...))
	return conn
}

func start(t *testing.T, listener net.Listener, create createFunc, opts ...grpc.ServerOption) {
	t.Helper()
	server := grpc.NewServer(opts...)
	server.RegisterService(&service, create)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
}

func dial(t *testing.T, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn := must.Get(grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...))(t)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// call sends an order of user 42. key "" sends none.
func call(ctx context.Context, conn *grpc.ClientConn, key, order string, opts ...grpc.CallOption) (string, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "user", "42")
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
	}
	reply := new(text)
	err := conn.Invoke(ctx, createMethod, wrapperspb.String(order), reply, opts...)
	return reply.GetValue(), err
}

// userOf is what an interceptor for authentication would know.
func userOf(ctx context.Context) string {
	if user := metadata.ValueFromIncomingContext(ctx, "user"); len(user) == 1 {
		return user[0]
	}
	return ""
}
