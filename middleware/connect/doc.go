// Package latchconnect runs a unary call of Connect once per user, procedure and key, however often its
// client sends it, or one at a time, over Connect, gRPC and gRPC-Web. It is a module of its own, so that
// programs without Connect do not download it.
//
//	once := latchconnect.Once(locker.With(lock.WithWait(10*time.Second)), auth.UserID, latchconnect.IdempotencyKey)
//	mux.Handle(shopv1connect.NewOrdersHandler(orders, connect.WithInterceptors(once)))
//
// What is kept, the refusals and their codes:
// https://github.com/httplatch/httplatch/blob/main/docs/grpc.md
package latchconnect
