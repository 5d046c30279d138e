package integrations_test

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/httplatch/httplatch/lock"
	latchgrpc "github.com/httplatch/httplatch/middleware/grpc"
)

func newServer(locker *lock.Locker, auth grpc.UnaryServerInterceptor, userOf func(context.Context) string) *grpc.Server {
	patient := locker.With(lock.WithWait(10 * time.Second)) // a repeat waits for the first answer
	return grpc.NewServer(
		grpc.ChainUnaryInterceptor(auth, latchgrpc.Once(patient, userOf, latchgrpc.IdempotencyKey)),
		grpc.ChainStreamInterceptor(latchgrpc.RefuseStreams()),
	)
}
