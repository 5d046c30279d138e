package failure

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/httplatch/httplatch/internal/ratelog"
)

var (
	// ErrPanicked is matched by the errors of OfHook.
	ErrPanicked = errors.New("panic in a hook of the client")

	// ErrUnsettled is the error of a call whose hook has ended its goroutine.
	ErrUnsettled = errors.New("a hook of the client did not return")
)

var logged ratelog.Log

// OfHook logs the panic of a hook of the client, and converts it to an
// error. It is for goroutines whose panic would end the process.
func OfHook(p any) error {
	err := fmt.Errorf("%w: %v", ErrPanicked, p)
	if due, _ := logged.Due("panic"); due {
		slog.Default().Error("redisstore: "+err.Error()+"; others are not logged for a minute", "stack", string(debug.Stack()))
	}
	return err
}
