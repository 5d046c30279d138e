package integrations_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	latchgrpc "github.com/httplatch/httplatch/middleware/grpc"
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
func serveGRPC(t *testing.T, create createFunc, guard grpc.UnaryServerInterceptor, options ...grpc.DialOption) grpcCall {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(recoverPanics, guard))
	server.RegisterService(&ordersService, create)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(listener.Addr().String(), options...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		server.GracefulStop()
		require.NoError(t, <-served)
	})
	return func(ctx context.Context, user, key, order string) (string, error) {
		return invoke(ctx, conn, user, key, order)
	}
}

func invoke(ctx context.Context, conn *grpc.ClientConn, user, key, order string) (string, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "user", user, "idempotency-key", key)
	reply := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, createMethod, wrapperspb.String(order), reply)
	return reply.GetValue(), err
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

func unguarded(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(ctx, req)
}

// sendTwice has two clients send each call at the same time, and again until it has an
// answer that is final, and returns the answers.
func sendTwice(t *testing.T, ids []string, send func(id string) (answer string, again bool)) map[string][]string {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	answers := map[string][]string{}
	limit := make(chan struct{}, 32)
	for _, id := range ids {
		for range 2 {
			limit <- struct{}{}
			all.Go(func() {
				defer func() { <-limit }()
				for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
					if answer, again := send(id); !again {
						mu.Lock()
						answers[id] = append(answers[id], answer)
						mu.Unlock()
						return
					}
				}
			})
		}
	}
	all.Wait()
	return answers
}

func TestGRPCStorm(t *testing.T) {
	t.Parallel()
	locker, _ := overRedis(t)
	for name, guard := range map[string]grpc.UnaryServerInterceptor{"Once": latchgrpc.Once(locker, callerOf, latchgrpc.IdempotencyKey), "nothing": unguarded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ids := newStorm(t), messages(150)
			call := serveGRPC(t, func(ctx context.Context, order *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
				if err := s.work(ctx, order.GetValue()); err != nil {
					return nil, status.Error(codes.Unavailable, err.Error())
				}
				return wrapperspb.String("created " + order.GetValue()), nil
			}, guard)
			answers := sendTwice(t, ids, func(id string) (string, bool) {
				answer, err := call(t.Context(), "42", id, id)
				if status.Code(err) == codes.FailedPrecondition {
					return "created " + id, false // it was processed, and then failed
				}
				return answer, err != nil
			})
			if name == "nothing" {
				require.NotEmpty(t, s.outcome(ids).doubled)
				return
			}
			s.requireExact(t, ids)
			for _, id := range ids {
				require.Equal(t, []string{"created " + id, "created " + id}, answers[id])
			}
		})
	}
}
