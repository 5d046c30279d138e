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
// this inside the guard, with the HTTPErrorHandler of the Echo. So the guard can keep this answer
// like any other, and outer middleware does not get the error. If the HTTPErrorHandler writes
// nothing, the request has failed: its key is free as after a 500, and outer middleware gets the
// error.
//
// If a handler returns nil and has written no answer, outer middleware may still answer, with a
// success or a failure. The guard then logs this once, keeps no answer, and refuses repeats with
// 409 result-not-replayable. To answer with an empty 200, call c.NoContent(http.StatusOK).
//
// echo.WrapMiddleware(guard) compiles, but misses the errors of handlers: for the guard, such a
// handler has written no answer. The guard logs this, keeps no answer, and refuses repeats with
// 409 result-not-replayable.
//
// # Requests
//
// Functions of keyfunc and WithLabel see the route: r.PathValue has the parameters of echo, and
// r.Pattern is the path of the route. [keyfunc.Context] reads the context of the request, not
// the values of c.Set, so let authentication set it: c.SetRequest(c.Request().WithContext(...)).
// In handlers, pass c.Request().Context() to lock.FromContext, lock.Commit, lock.Attempt and
// latch.DoNotKeep.
package latchecho
