// Package latchgin mounts the guards of httplatch in gin. It is a module of its own, so that
// programs without gin do not download it.
//
//	r := gin.New()
//	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
//	r.POST("/orders", latchgin.Use(once), createOrder)
//
// # Errors
//
// gin's handlers may leave their answer to outer middleware: they call c.Error, and the
// middleware answers after c.Next has returned. The guard cannot record that answer. So if
// handlers behind the guard have recorded an error and written no body, with a status or without,
// the request has failed: its key is free as after a 500, no cool-down begins, outer middleware
// answers, and a repeat runs the handler again. After lock.Commit, a repeat gets 409
// result-not-replayable instead. To keep such an answer, mount the middleware that writes it
// inside the guard.
//
// A handler that sets a status and writes nothing (c.Status) has answered. If a handler does not
// even set a status, outer middleware may still answer, with a success or a failure. The guard
// then logs this once, keeps no answer, and refuses repeats with 409 result-not-replayable. To
// answer with an empty 200, call c.Status(http.StatusOK).
//
// # Requests
//
// Functions of keyfunc and WithLabel see the route: r.PathValue has the parameters of gin, and
// r.Pattern is c.FullPath. [keyfunc.Context] reads the context of the request, not c.Keys, so
// let authentication set it: c.Request = c.Request.WithContext(...). In handlers, pass
// c.Request.Context() to lock.FromContext, lock.Commit, lock.Attempt and latch.DoNotKeep.
package latchgin
