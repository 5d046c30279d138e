// Package latchecho mounts the guards of httplatch in echo v5; package echo4 does in v4. They
// are a module of their own, so that programs without echo do not download it.
//
//	e := echo.New()
//	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
//	e.POST("/orders", createOrder, latchecho.Use(once))
//
// # Errors
//
// echo turns the error of a handler into an answer after all middleware has returned. [Use] does
// that inside the guard, with the HTTPErrorHandler of the Echo, so that the answer is kept or
// not like any other, and outer middleware does not get the error. If the HTTPErrorHandler
// writes nothing, the request has failed: its key is free as after a 500, and the error goes on
// to outer middleware.
//
// A handler that returns nil and has not answered may be answered by outer middleware, as a
// success or as a failure: the guard logs that once, keeps no answer, and refuses repeats with
// 409 result-not-replayable. To answer an empty 200, say c.NoContent(http.StatusOK).
//
// echo.WrapMiddleware(guard) compiles, and misses the errors of handlers: the guard sees a
// handler that has answered nothing. It then logs that, keeps no answer, and refuses repeats
// with 409 result-not-replayable.
//
// # Requests
//
// Functions of keyfunc and WithLabel see the route: r.PathValue has the parameters of echo, and
// r.Pattern is the path of the route. [keyfunc.Context] reads the context of the request, not
// the values of c.Set, so let authentication set it: c.SetRequest(c.Request().WithContext(...)).
// In handlers, pass c.Request().Context() to lock.FromContext, lock.Commit, lock.Attempt and
// latch.DoNotKeep.
package latchecho
