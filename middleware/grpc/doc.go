// Package latchgrpc runs a unary call of gRPC once per user, method and key, however often its client
// sends it, or one at a time. It is a module of its own, so that programs without gRPC do not download it.
//
//	once := latchgrpc.Once(locker.With(lock.WithWait(10*time.Second)), auth.UserID, latchgrpc.IdempotencyKey)
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(auth.Unary, once),
//		grpc.ChainStreamInterceptor(auth.Stream, latchgrpc.RefuseStreams()),
//	)
//
// What is kept, the refusals and their codes:
// https://github.com/httplatch/httplatch/blob/main/docs/grpc.md
package latchgrpc
