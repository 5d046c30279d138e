package failure

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/httplatch/httplatch/internal/ratelog"
)

// Result is the result of a call.
type Result[T any] struct {
	Value T
	Err   error
}

// Apart makes a call that runs code of the user, on a goroutine of its own, and sends its result: the
// code may panic, end the goroutine, or take any time. The channel has room for the result.
func Apart[T any](call func() (T, error)) <-chan Result[T] {
	made := make(chan Result[T], 1)
	go func() {
		r := Result[T]{Err: errors.New("a hook of the client did not return")}
		defer func() {
			if p := recover(); p != nil {
				r.Err = fmt.Errorf("panic in a hook of the client: %v", p)
				if due, _ := logged.Due("panic"); due {
					slog.Default().Error("redisstore: "+r.Err.Error()+"; others are not logged for a minute", "stack", string(debug.Stack()))
				}
			}
			made <- r
		}()
		r.Value, r.Err = call()
	}()
	return made
}

var logged ratelog.Log
